"""The right size of limits from the tables: windows of demand, and what follows from them.

In reading order: buckets, windows, kept_days, recommended, sentences, rows, bounded.
"""
