"""One client or bucket over time.

In reading order: events, timeline_events, top_buckets, timeline.
"""
