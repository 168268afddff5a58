"""One client or bucket over time.

In reading order: timeline_events, top_buckets, timeline.
"""
