"""Provide three small composed image-text encoders with their weights, so that an audit runs on a CPU in seconds."""
