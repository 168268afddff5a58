"""Python workers serve many tasks, and Spark has them look for garbage after each one.

A look goes over all objects, and most of them belong to imported modules: 60 ms, more than a small task takes.
"""

from __future__ import annotations

import atexit
import gc
import sys

_modules = 0


def look_seldom() -> None:
    """For a task with points: they come and go by the million and hold no cycles. Spark looks after the task."""
    gc.set_threshold(2_000_000, 20, 20)


def keep_imports() -> None:
    """Leave what was imported out of all later looks; called at the end of a task, when nothing else is alive."""
    global _modules  # noqa: PLW0603 - of this process
    if len(sys.modules) > _modules:
        if not _modules:
            # DuckDB reports what the end of the process does not free.
            atexit.register(gc.unfreeze)
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()
