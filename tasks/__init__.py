"""MTEB task classes, installed as `circus_bench.tasks`."""
