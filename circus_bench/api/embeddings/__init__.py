"""Encode with embedding models behind a paid HTTP interface; one module per vendor.

`vendor` says what a vendor's module brings, `connection` speaks HTTP, `encoder` is the encoder that mteb sees. Rate
limits, retries, budgets and the response cache are in `circus_bench.api.runtime`.

Plain HTTP is used rather than the vendors' packages: those retry by themselves, so that neither the rate nor the money
would be under our control, and one of them brings an unrelated framework along.
"""
