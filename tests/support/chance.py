"""Chance in tests: one seed for a whole run, the same in each run unless `KQUOTA_SEED=n` names another.

Tests take the fixture `chance`, and that makes them random tests: `python -m tests.fuzz` runs them with new seeds.
Hypothesis takes the seed too. The workers of a run and the programs that it starts inherit it by the environment.
"""

from __future__ import annotations

import os
import random

Chance = random.Random
"""A source of chance; with a literal seed, it is that of one case."""
VARIABLE = "KQUOTA_SEED"
SEED = int(os.environ.setdefault(VARIABLE, "29"))
# The order of texts in a set: fixed in the workers of this run, and in the programs that it starts.
os.environ.setdefault("PYTHONHASHSEED", str(SEED))


def drawn(*names: object) -> Chance:
    """The source of chance of one place, which prints how to repeat it.

    Args:
        names: what tells the sources of one run from each other.
    """
    print(f"{VARIABLE}={SEED} repeats it")
    return Chance("/".join(map(str, (SEED, *names))))


def new_seed() -> int:
    """A seed that nobody has chosen."""
    return random.SystemRandom().randrange(10**6)
