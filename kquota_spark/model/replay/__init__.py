"""The broker's verdicts again, request by request, with how sure each is, and what they add up to.

In reading order: shaken_ring, told_windows, causes, replay, agreement, mutation_replay, request_replay,
decision, log_beginning.
"""
