"""A period again: `spark-submit jobs/restate.py --config FILE --from T --to T`, the same as `kquota restate`."""

from __future__ import annotations

import sys

from kquota_spark.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["restate", *sys.argv[1:]]))
