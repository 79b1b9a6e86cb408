"""From a benchmark and the verdicts on its queries to what others load: subsets, folders, cards, submissions.

`verdicts` joins labels and human validation to a benchmark, `adapters` reads them from the files they come in,
`published` holds the ones that the CIRCUS project released, and `submission` writes and checks the files that the CIRR
and CIRCO test servers take.
"""
