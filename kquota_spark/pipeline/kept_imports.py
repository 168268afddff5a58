"""Makes garbage collection cheap on Python workers: they serve many tasks, and Spark has them collect after each one.

A collection visits all objects, and most of them belong to imported modules. It takes 60 ms, more than a small task.
"""

from __future__ import annotations

import atexit
import gc
import sys

_modules = 0


def collect_seldom() -> None:
    """Make collections rare in a task with points: it has millions of them, without cycles. Spark collects after it."""
    gc.set_threshold(2_000_000, 20, 20)


def keep_imports() -> None:
    """Exclude imported objects from later collections; call it at the end of a task, when nothing else is alive."""
    global _modules  # noqa: PLW0603 - of this process
    if len(sys.modules) > _modules:
        if not _modules:
            # DuckDB reports objects that are not freed at the end of the process.
            atexit.register(gc.unfreeze)
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()
