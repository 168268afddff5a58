"""The audit: `spark-submit jobs/audit.py --config conf/kquota.yaml`; `kquota audit` needs no spark-submit."""

from __future__ import annotations

import argparse
import sys

from kquota_spark.cli.door import through_the_door
from kquota_spark.cli.jobs.audit import add_options, run


def main() -> int:
    """Arguments, one call, one exit code."""
    parser = argparse.ArgumentParser(
        prog="audit.py", description="Audit Kafka client quotas from the request log."
    )
    add_options(parser)
    options = parser.parse_args()
    return through_the_door("audit", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
