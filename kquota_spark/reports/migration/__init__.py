"""Two sides of a migration or an upgrade, compared by their effect on the same traffic.

In reading order: leftovers, callbacks, reasons, checking.
"""
