"""News for people: what the tables show becomes events, and each event reaches its receivers at least once.

`news` and `formats` are pure; the edges are the tables, the outbox and the network.

In reading order: found, outbox, sending, job.
"""
