"""`kquota`: arguments in, one exit code out.

Exit codes: 0 done, 1 an error (one line on stderr), 2 wrong usage or, for `doctor`, findings, 3 refused by a guard of
enforcement.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from kquota_spark import __version__
from kquota_spark.cli import (
    agreement,
    backfill,
    cluster,
    collect,
    doctor,
    enforce,
    enforcement,
    exempt,
    explain,
    findings,
    freeze,
    maintain,
    override,
    read,
    replay,
    resolve,
    restate,
    ship,
    topics,
    watch,
    whatif,
)
from kquota_spark.cli.escape import terminal_text
from kquota_spark.errors import UserError
from kquota_spark.model.quota_callback import CallbackError


def parser() -> argparse.ArgumentParser:
    """The parser of every command; the command groups add their own."""
    top = argparse.ArgumentParser(
        prog="kquota",
        description="Audit of Apache Kafka client quotas: reads the tables, replays request logs.",
    )
    top.add_argument("--version", action="version", version=f"kquota {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for group in (
        read,
        agreement,
        findings,
        doctor,
        resolve,
        explain,
        replay,
        whatif,
        ship,
        collect,
        backfill,
        watch,
        restate,
        enforce,
        enforcement,
        freeze,
        exempt,
        override,
        maintain,
        cluster,
        topics,
    ):
        group.add_commands(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (UserError, CallbackError) as error:
        # Line feeds part the problems of a quota file; all else may be a name that somebody else chose.
        for line in str(error).split("\n"):
            print(f"kquota: {terminal_text(line)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output went away (kquota ... | head); nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
