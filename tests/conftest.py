"""How Hypothesis works in all tests: no claim of them is about how long an example takes."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# By default 200 ms an example, and a second for making the first ones: on a machine that pauses, they fail.
settings.register_profile(
    "kquota", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("kquota")
