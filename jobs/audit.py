"""The audit: `spark-submit jobs/audit.py --config conf/kquota.yaml`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kquota_spark.audit.job import run_audit
from kquota_spark.audit.queries import QUERIES
from kquota_spark.cli.door import through_the_door
from kquota_spark.config.loader import load_settings


def main() -> int:
    """Arguments, one call, one exit code."""
    parser = argparse.ArgumentParser(
        prog="audit.py", description="Audit Kafka client quotas from the request log."
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--only", choices=QUERIES, action="append", help="run only this query; may be repeated"
    )
    parser.add_argument("--once", action="store_true", help="work through what is there, then end")
    parser.add_argument(
        "--drain", action="store_true", help="--once for input that has ended: close the last seconds too"
    )
    parser.add_argument(
        "--new-lineage",
        action="store_true",
        help="queries whose checkpoint is lost continue behind what their tables hold",
    )
    options = parser.parse_args()
    queries = [name for name in QUERIES if options.only is None or name in options.only]

    def run() -> int:
        run_audit(
            load_settings(options.config),
            queries,
            is_once=options.once,
            is_drained=options.drain,
            is_new_lineage=options.new_lineage,
        )
        return 0

    return through_the_door("audit", run)


if __name__ == "__main__":
    sys.exit(main())
