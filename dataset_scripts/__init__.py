"""Hold the `datasets` builders and the publish script, installed as `circus_bench.dataset_scripts`."""
