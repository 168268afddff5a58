"""Runs a program of ours and kills it, as `kill -9` does, at a durable step that is given by name.

A durable step is what leaves something behind for the next start: a commit of a Delta table, or a file put in its
place. It has the name of what is changed, such as `merge violations` or `replace log.pinned.json`, so it keeps its name
whatever code makes it. `KILLED_AT` is the moment of death, such as `before merge violations`; `STEPS` is a file to
which each moment that comes is added.

    spark-submit tests/support/spark/durable_steps.py jobs/audit.py --config conf/kquota.yaml
"""

from __future__ import annotations

import functools
import os
import re
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

KILLED_AT, STEPS = "KQUOTA_TEST_KILLED_AT", "KQUOTA_TEST_STEPS"
BEFORE, AFTER = "before", "after"
KILLED = -signal.SIGKILL
"""What `subprocess` says of the process that was killed."""
_NUMBERED = re.compile(r"\d+")


def install(come: Callable[[str], None], patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Put a step around everything that changes a table or replaces a file.

    Args:
        come: is called at each moment.
        patch: replaces an attribute.
    """
    import deltalake
    from deltalake.table import DeltaTable, TableMerger, TableOptimizer

    def wrap(owner: Any, attribute: str, named: Callable[..., str]) -> None:
        patch(owner, attribute, _step(named, getattr(owner, attribute), come))

    wrap(deltalake, "write_deltalake", lambda table, *_, mode="error", **__: f"{mode} {_table(table)}")
    wrap(DeltaTable, "create", lambda where, *_, **__: f"create {_base(where)}")
    wrap(DeltaTable, "create_write_transaction", lambda table, *_, **__: f"add {_table(table)}")
    wrap(TableMerger, "execute", lambda merger: f"merge {_base(merger._table.table_uri())}")
    for verb in ("delete", "update", "vacuum"):
        wrap(DeltaTable, verb, lambda table, *_, verb=verb, **__: f"{verb} {_table(table)}")
    for verb in ("compact", "z_order"):
        wrap(TableOptimizer, verb, lambda optimizer, *_, **__: f"compact {_table(optimizer.table)}")
    wrap(os, "replace", lambda _, to: f"replace {_base(to)}")


def _step(
    named: Callable[..., str], change: Callable[..., Any], come: Callable[[str], None]
) -> Callable[..., Any]:
    @functools.wraps(change)
    def done(*args: Any, **options: Any) -> Any:
        name = named(*args, **options)
        come(f"{BEFORE} {name}")
        result = change(*args, **options)
        come(f"{AFTER} {name}")
        return result

    return done


def _table(table: Any) -> str:
    return _base(table if isinstance(table, str | Path) else table.table_uri)


def _base(path: Any) -> str:
    """The last name of a path, without the numbers that differ from run to run."""
    return _NUMBERED.sub("N", Path(str(path)).name)


def _die_at(moment: str) -> None:
    if STEPS in os.environ:
        with Path(os.environ[STEPS]).open("a", encoding="utf-8") as file:
            file.write(f"{moment}\n")
    if os.environ.get(KILLED_AT) == moment:
        if "PYSPARK_GATEWAY_PORT" in os.environ:  # we are a child of the JVM of spark-submit
            os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    install(_die_at)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
