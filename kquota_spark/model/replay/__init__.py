"""Replay of the broker's verdicts, request by request, with the certainty of each, and their sums.

In reading order: shaken_ring, told_windows, causes, replay, edits, agreement, mutation_replay, request_replay,
decision, least_limit, log_beginning.
"""
