"""From what was found to what is sent: events, what is new of them, groups and limits. Pure; time is an argument.

In reading order: events, fold, lanes, state.
"""
