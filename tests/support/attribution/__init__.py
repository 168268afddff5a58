"""Generated buckets with a known main cause of their throttling."""
