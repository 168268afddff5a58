"""Seeds of generated cases. The thresholds of the detectors were chosen with `KNOWN`, before `HELD_OUT` was tried."""

from __future__ import annotations

KNOWN = range(8)
HELD_OUT = range(92_101, 92_131)
"""30 seeds: the causes take turns."""
HELD_OUT_NULLS = range(92_201, 92_213)
"""12 seeds: the nulls take turns."""
HELD_OUT_MIXTURES = range(92_301, 92_311)
"""10 seeds of buckets with several causes."""
