"""Embedding models behind a paid HTTP interface; one module of `circus_bench.models` a vendor.

`vendor` says what a vendor's module brings, `connection` speaks HTTP, `images` prepares pictures, `encoder` is the
encoder that mteb sees. Pace, retries, budgets and the replies on disk are in `circus_bench.api.runtime`.

Plain HTTP is used rather than the vendors' packages: those retry by themselves, so that neither the pace nor the money
would be under our control, and one of them brings an unrelated framework along.
"""
