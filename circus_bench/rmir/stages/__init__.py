"""Implement the stages of the RMIR pipeline: one module each, every one a pure function from rows to rows.

| stage | module | from | to |
|---|---|---|---|
| 0 seed | `seed` | images, their embeddings | `ScannedImage`; `Seed`, `DroppedImage` |
| 1 generate | `generate` | `Seed` | `Draft`, `FailedRequest` |
| 2 filter | `filter` | `Draft` | `Check`; the `Draft` rows that passed |
| 3 candidates | `caption`, `candidates` | `Seed`, `Draft`, embeddings | `Caption`, `FailedRequest`; `Candidate` |
| 4 judge | `judge`, `consensus` | `Draft`, `Candidate` | `Vote`; `CandidateConsensus`, the aggregated votes |
| 5 keep | `consensus` | `CandidateConsensus` | `CandidateConsensus` (those that survive), `ExcludedImage` |
| 6 pool | `pool` | `CandidateConsensus` | `PoolImage` |
| 7 split | `split` | `CandidateConsensus`, `Candidate` | `SplitAssignment` |

The functions know nothing of files, executors or the order of the batches. Those that call a model take a `ChatClient`,
handle the result of every request, and never take an unreadable reply for a verdict; `images` maps image ids to the
bytes of their files. Each module has a `VERSION`, to be raised with every change that changes its rows.
"""
