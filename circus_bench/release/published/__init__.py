"""The verdicts that the CIRCUS project released, in a compact form; README.md names sources and licences."""
