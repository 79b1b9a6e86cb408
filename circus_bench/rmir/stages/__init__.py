"""The stages of the RMIR pipeline: one module each, every one a pure function from rows to rows.

| stage | module | from | to |
|---|---|---|---|
| 0 seed | `seed` | images, their embeddings | `Seed`, `Removed` |
| 1 generate | `generate` | `Seed` | `Draft`, `Unanswered` |
| 2 filter | `filter` | `Draft` | `Check`; the `Draft` rows that passed |
| 3 candidates | `caption`, `candidates` | `Seed`, `Draft`, embeddings | `Caption`, `Unanswered`; `Candidate` |
| 4 judge | `judge` | `Draft`, `Candidate` | `Vote`; `Judged`, the votes summed up |
| 5 keep | `keep` | `Judged` | `Judged` (those that survive), `Deleted` |
| 6 pool | `pool` | `Judged` | `PoolImage` |
| 7 split | `split` | `Judged`, `Candidate` | `Assigned` |

The functions know nothing of files, engines or the order in which batches are worked on. Those that ask a model take an
`Asker`, give an outcome to every question, and never take an unreadable reply for a verdict. Each module has a
`VERSION`, to be raised with every change that changes its rows.
"""
