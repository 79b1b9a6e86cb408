"""Read, write and publish benchmarks on disk: dataset folders that `load_dataset`, mteb and the Hub take as they are.

`writer` writes a dataset folder, `reader` reads it, `loading` finds a benchmark by name, and `publish` sends a folder
to the Hub. `tables` has the columns, `card`, `croissant` and `licenses` what a reader of the folder should know.
"""
