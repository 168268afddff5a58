"""Which client slows a broker: its log lines in windows, from the log topic or from files, and the usual cure.

In reading order: reading, cures, beside.
"""
