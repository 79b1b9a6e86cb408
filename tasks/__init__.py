"""Define the MTEB task classes of circus-bench; installed as `circus_bench.tasks`.

One file per task, with its metadata; the logic is in `circus_bench.tasks.retrieval`. `circus_bench.registration` makes
them known to mteb.
"""
