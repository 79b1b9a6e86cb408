"""Submit results: to a leaderboard, with the rank tables they follow from, and to the test servers of CIRR and CIRCO.

```
.eval_results/
  circus_<benchmark>.yaml     one entry per task of the dataset folder: value, dataset and revision, notes, date, source
  circus/<benchmark>/         the Run as it was saved: manifest.json, ranks.parquet, topk.parquet
```

The Run lies beside the entries, in the same commit, so that anybody who sees a value can compute it again from files of
the same revision; a link to another repository could break or change. The Hub reads the YAML files alone.

`leaderboard` writes them and opens the pull request. `verify` computes every value again and lists what does not
follow, as `violations`; `topk_checks` holds the ranks against the top-k lists. `server_files` is for the test servers.
"""
