"""The maintenance alone, without Spark: `python jobs/maintain.py --config FILE`, the same as `kquota maintain`."""

from __future__ import annotations

import sys

from kquota_spark.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["maintain", *sys.argv[1:]]))
