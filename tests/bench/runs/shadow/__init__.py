"""The whole job with a shadow, beside one without: `python -m tests.bench.runs.shadow`."""
