"""From the state of the tables to messages: events, news, groups and limits. Pure code; time is an argument.

In reading order: events, fold, lanes, state.
"""
