"""The quota that governs a request at a past time: rules and callbacks, joined with the period in which they hold.

In reading order: govern, callback_governor, traffic.
"""
