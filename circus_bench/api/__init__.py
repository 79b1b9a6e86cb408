"""Call paid services: `runtime` paces, retries, budgets and caches; `embeddings` and `chat` speak to the vendors."""
