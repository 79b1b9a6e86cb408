"""Make and keep Runs: rank table, top-k lists and manifest of one model on one benchmark."""
