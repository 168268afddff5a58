"""Why a bucket was throttled: replays without one cause or one client, and shares that add up to the delay.

In reading order: shapley, counterfactuals, onsets, backlogs, observed, detectors, precision, causes, sharing.
"""
