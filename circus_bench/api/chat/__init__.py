"""Complete multimodal requests with chat models of several providers, live or in batches, cached and within a budget."""
