"""From a benchmark and the verdicts on its queries to what others load: subsets, folders, cards, submissions.

`verdicts` joins labels and human validation to a benchmark, `adapters` reads them from the files they come in,
`published` holds the ones that the CIRCUS project released. `folder` writes a dataset folder, `reading` reads it, and
`publish` sends it to the Hub. `submission` writes and checks the files that the CIRR and CIRCO test servers take;
`leaderboard` does so for the results that a model's repository holds.
"""
