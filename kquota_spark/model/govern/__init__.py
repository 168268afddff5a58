"""What governs a request at a moment of the past: rules and callbacks, joined with the time for which they hold.

In reading order: govern, callback_governor, traffic.
"""
