"""Make a reasoning-intensive retrieval benchmark (RMIR) from a collection of images.

Seven stages and a seed pool, one module each, every one a function from tables to a table (see
`circus_bench.rmir.records`). Requests go to models through `circus_bench.api.chat.messages`. The result is a
Benchmark, audited like any other. After "RMIR: A Benchmark Dataset for Reasoning-Intensive Multimodal Image Retrieval"
(CVPR 2026); what the paper leaves open is a parameter.
"""
