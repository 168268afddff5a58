"""Chance in tests: one seed for a whole run, drawn anew each time, that `KQUOTA_SEED=n` repeats.

Hypothesis takes it too. The workers of a run inherit the seed by the environment of the process that leads them.
"""

from __future__ import annotations

import os
import random

_VARIABLE = "KQUOTA_SEED"
SEED = int(os.environ.setdefault(_VARIABLE, str(random.SystemRandom().randrange(10**6))))


def drawn(*names: object) -> random.Random:
    """The source of chance of one test, which prints how to repeat it.

    Args:
        names: what tells the sources of one test from each other, if it has more than one.
    """
    print(f"{_VARIABLE}={SEED} repeats it")
    return random.Random("/".join(map(str, (SEED, *names))))
