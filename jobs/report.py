"""The report alone, without Spark: `python jobs/report.py --config FILE --folder DIR`, the same as `kquota report`."""

from __future__ import annotations

import sys

from kquota_spark.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
