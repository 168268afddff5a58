"""What shippers put around a line.

In reading order: broker_ids, envelopes, messages, stored_text.
"""
