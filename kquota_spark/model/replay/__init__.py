"""Replay of the broker's verdicts, request by request, with the certainty of each, and their sums.

In reading order: perturbed_rings, windows_from_throttles, causes, replay, edits, agreement, mutation_replay,
request_replay, decision, least_limit, log_beginning.
"""
