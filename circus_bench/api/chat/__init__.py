"""Complete multimodal requests with LLMs of several providers, live or in batches, cached and within a budget."""
