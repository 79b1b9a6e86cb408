"""Templates of dataset, metric and leaderboard cards, installed as `circus_bench.cards`."""
