"""Load embedding models whose published code needs help, one file per model family."""
