"""The watch alone: `spark-submit jobs/watch.py --config conf/kquota.yaml`, the same as `kquota watch`."""

from __future__ import annotations

import sys

from kquota_spark.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["watch", *sys.argv[1:]]))
