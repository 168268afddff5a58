"""The envelopes that log shippers put around a line.

In reading order: envelopes, messages.
"""
