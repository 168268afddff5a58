"""All scenarios by their labels."""

from __future__ import annotations

from tests.causes.mixtures import MIXTURES
from tests.causes.nulls import NULLS
from tests.causes.plan import CAUSES, Scenario
from tests.support.chance import Chance

SCENARIOS = {**CAUSES, **NULLS, **MIXTURES}
"""Each makes a run from a source of chance."""


def drawn(seed: int, label: str) -> Scenario:
    """A scenario, by its seed and its label."""
    return SCENARIOS[label](Chance(f"{seed}/{label}"))
