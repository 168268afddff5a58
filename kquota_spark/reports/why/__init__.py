"""Why buckets were throttled: their requests and what came before from the tables, and the causes in sentences.

In reading order: recorded, request_counts, positions, before, answers, kept, reasons, sentences,
rows, of_scope, keeping.
"""
