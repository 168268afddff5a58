"""Notifications for people: changes in the tables become events, and each event reaches its receivers at least once.

`news` and `formats` are pure code; the edges are the tables, the outbox and the network.

In reading order: budgets, found, causes, outbox, sending, job.
"""
