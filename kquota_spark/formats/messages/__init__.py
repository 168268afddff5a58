"""What shippers put around a line.

In reading order: envelopes, messages.
"""
