"""Makes the fetched jars part of the PySpark of this environment, so that a plain `spark-submit` has them."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from kquota_spark.embedded.setup.jars import find_jars, pyspark_jars
from kquota_spark.errors import UserError

_ARTIFACT = re.compile(r"(.+?)-\d[\w.\-]*\.jar")


def link_into_pyspark(jars: Sequence[Path], pyspark_jars: Path) -> None:
    """Link jars into PySpark's own directory, and drop the links of an earlier set.

    An artifact that PySpark ships is left as it is: a second version would shadow what Spark was built with.
    """
    wanted = {jar.name: jar for jar in jars}
    present = list(pyspark_jars.glob("*.jar"))
    shipped = {_artifact(jar.name) for jar in present if not jar.is_symlink()}
    for jar in present:
        is_kept = jar.name in wanted and jar.resolve() == wanted[jar.name].resolve()
        if jar.is_symlink() and not is_kept:
            jar.unlink()
    for name, jar in wanted.items():
        if _artifact(name) not in shipped:
            with contextlib.suppress(FileExistsError):
                (pyspark_jars / name).symlink_to(jar.resolve())


def _artifact(name: str) -> str:
    match = _ARTIFACT.fullmatch(name)
    return match.group(1) if match else name


def main(arguments: list[str]) -> int:
    """Link the fetched jars of the declaration named on the command line."""
    try:
        link_into_pyspark(find_jars(Path(arguments[0]) if arguments else None).spark, pyspark_jars())
    except (UserError, OSError) as error:
        print(f"kquota: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
