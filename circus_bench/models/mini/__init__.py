"""Three small composed image-text encoders that ship with their weights, so that an audit runs on a CPU in seconds."""
