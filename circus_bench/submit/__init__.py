"""Results for a leaderboard: `.eval_results/*.yaml` in a model's repository, with the rank tables they follow from.

```
.eval_results/
  circus_<benchmark>.yaml     one entry a task of the dataset folder: value, dataset and revision, notes, date, source
  circus/<benchmark>/         the Run as it was saved: manifest.json, ranks.parquet, topk.parquet
```

The Run lies beside the entries, in the same commit, so that anybody who sees a value can compute it again from files of
the same revision; a link to another repository could break or change. The Hub reads the YAML files alone.

`entries` writes them and opens the pull request. `recompute` computes every value again and lists what does not follow,
as `refusals`; `listings` holds the ranks against the lists of what was retrieved.
"""
