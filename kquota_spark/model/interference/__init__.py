"""Which client slows a broker for the others: its use of the broker's threads against the waiting times of all others.

In reading order: windows, suspects.
"""
