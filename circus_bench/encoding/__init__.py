"""Encode a benchmark under three conditions, check the encoder, and keep the embeddings."""
