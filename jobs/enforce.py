"""Enforcement: `spark-submit jobs/enforce.py --config conf/kquota.yaml`; `kquota enforce run` needs no spark-submit."""

from __future__ import annotations

import argparse
import sys

from kquota_spark.cli.door import through_the_door
from kquota_spark.cli.enforce.run import add_options, run


def main() -> int:
    """Arguments, one call, one exit code."""
    parser = argparse.ArgumentParser(
        prog="enforce.py", description="Let decisions become quotas, as far as the policy file allows."
    )
    add_options(parser)
    options = parser.parse_args()
    return through_the_door("enforce", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
