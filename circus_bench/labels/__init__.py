"""Label queries: shortcut labels with their evidence, and human verdicts, in one table."""
