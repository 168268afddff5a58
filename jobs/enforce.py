"""Enforcement: `spark-submit jobs/enforce.py --config conf/kquota.yaml`; `--once` needs no spark-submit."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kquota_spark.cli.door import through_the_door
from kquota_spark.cli.enforce.plan_page import event_line
from kquota_spark.cli.text.page import say
from kquota_spark.config.loader import load_settings
from kquota_spark.enforcement.job import run_enforcement


def main() -> int:
    """Arguments, one call, one exit code."""
    parser = argparse.ArgumentParser(
        prog="enforce.py", description="Let decisions become quotas, as far as the policy file allows."
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--once", action="store_true", help="check once, without Spark, then end")
    options = parser.parse_args()

    def run() -> int:
        run_enforcement(
            load_settings(options.config), lambda entry: say(event_line(entry)), is_once=options.once
        )
        return 0

    return through_the_door("enforce", run)


if __name__ == "__main__":
    sys.exit(main())
