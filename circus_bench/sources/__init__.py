"""Sources of benchmarks: one module each, from annotation files or a generator to a `Benchmark`."""
