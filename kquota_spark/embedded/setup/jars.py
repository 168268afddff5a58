"""The jars of Spark's job and of the embedded brokers, fetched once and checked at each use.

`conf/ivy.xml` declares both class paths. The Ivy inside PySpark resolves them, so that only Java is needed. Another
declaration, with only a configuration `broker`, gives another broker version. Fetched jars must have the SHA-256 of the
list beside the declaration. They are stored outside the checkout, under the hash of declaration and list. So checkouts
share them, and a changed declaration never uses old jars. A manifest, written last, names each jar and its size. A
cache without it, or with a missing or truncated jar, is incomplete and is fetched again.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kquota_spark.embedded.setup.ivy import retrieve
from kquota_spark.embedded.setup.java import find_java
from kquota_spark.embedded.setup.sums import check_sums, parse_sums, read_sums, sums_of, write_sums
from kquota_spark.errors import UserError
from kquota_spark.process.extras import install_text

CONF = Path(__file__).parents[2] / "conf"
"""The folder `conf` of the package, which is a link to that of the checkout."""
IVY_XML = CONF / "ivy.xml"
_MANIFEST = "manifest.json"
_ARTIFACT = re.compile(r"(.+?)-\d[\w.\-]*\.jar")
_CONF = re.compile(rb'<conf name="(spark|broker|agent)"')


@dataclass(frozen=True, slots=True)
class Jars:
    """The two class paths, and the Java agent of the brokers; each is empty if the declaration does not have it."""

    spark: tuple[Path, ...] = ()
    broker: tuple[Path, ...] = ()
    agent: tuple[Path, ...] = ()


def cache_dir(ivy_xml: Path) -> Path:
    """The directory for the jars of a declaration."""
    own = os.environ.get("KQUOTA_JARS")
    if own:
        # A declaration with another name has a folder of its own there: else two would replace each other's jars.
        other = "" if ivy_xml.name == IVY_XML.name else ivy_xml.stem
        return Path(own).expanduser() / other
    shared = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return shared / "kquota-spark" / f"jars-{_read(ivy_xml).sha256[:12]}"


def find_jars(ivy_xml: Path | None = None) -> Jars:
    """Return the fetched jars; never download.

    Raises:
        UserError: they were not fetched, or some are missing.
    """
    path = ivy_xml or IVY_XML
    found = _complete(cache_dir(path), _read(path))
    if found is None:
        raise UserError("jars are missing: run make setup")
    return found


def ensure_jars(ivy_xml: Path | None = None, ivy: Path | None = None) -> Jars:
    """Return the jars; fetch them first if some are missing.

    Args:
        ivy_xml: the declaration; None for that of Spark and the default broker.
        ivy: directory with Ivy's jar; None for the installed PySpark.

    Raises:
        UserError: Java or PySpark is missing, Ivy could not fetch the jars, or they differ from the listed ones.
    """
    path = ivy_xml or IVY_XML
    declaration, target = _read(path), cache_dir(path)
    found = _complete(target, declaration)
    if found is not None:
        return found
    try:
        with _only_one(target):
            # Another process may have fetched them while this one waited for the lock.
            return _complete(target, declaration) or _fetch(declaration, target, ivy)
    except OSError as error:
        msg = f"the jars cannot be kept in {target}: {error}: set KQUOTA_JARS to a writable directory"
        raise UserError(msg) from error


def lock_jars(ivy_xml: Path) -> Path:
    """Write the list of SHA-256 from the registry's present jars; return its path.

    This is for the author of a declaration, who compares the list with other sources before committing it.
    """
    confs = _confs(_text(ivy_xml), ivy_xml)
    with tempfile.TemporaryDirectory() as temporary:
        work, downloads = Path(temporary, "jars"), Path(temporary, "downloads")
        retrieve(find_java().path, pyspark_jars(), ivy_xml, confs=confs, into=work, downloads=downloads)
        return write_sums(sums_of(work, confs), ivy_xml)


class _Declaration(NamedTuple):
    """The contents of an ivy.xml and its list of SHA-256."""

    path: Path
    sha256: str
    """The hash of both."""
    confs: tuple[str, ...]
    sums: bytes


def _read(ivy_xml: Path) -> _Declaration:
    text = _text(ivy_xml)
    confs, sums = _confs(text, ivy_xml), read_sums(ivy_xml)
    return _Declaration(ivy_xml, hashlib.sha256(text + sums).hexdigest(), confs, sums)


def _text(ivy_xml: Path) -> bytes:
    try:
        return ivy_xml.read_bytes()
    except OSError as error:
        msg = f"{ivy_xml}: cannot be read ({error.strerror}): name the declaration of the jars, conf/ivy.xml"
        raise UserError(msg) from error


def _confs(text: bytes, ivy_xml: Path) -> tuple[str, ...]:
    confs = tuple(name.decode() for name in _CONF.findall(text))
    if not confs:
        msg = f"{ivy_xml}: no configuration spark or broker in it: name the declaration of the jars, conf/ivy.xml"
        raise UserError(msg)
    return confs


def _complete(directory: Path, declaration: _Declaration) -> Jars | None:
    try:
        manifest = json.loads((directory / _MANIFEST).read_bytes())
        if manifest["ivy_sha256"] != declaration.sha256:
            return None
        paths: dict[str, tuple[Path, ...]] = {}
        for conf in declaration.confs:
            sizes: dict[str, int] = manifest[conf]
            paths[conf] = tuple(directory / conf / name for name in sizes)
            if any(
                path.stat().st_size != size for path, size in zip(paths[conf], sizes.values(), strict=True)
            ):
                return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Jars(**paths)


def _fetch(declaration: _Declaration, target: Path, ivy: Path | None) -> Jars:
    confs, expected = declaration.confs, parse_sums(declaration.sums, declaration.path)
    _refuse_foreign(target, confs)
    java, class_path = find_java(), ivy or pyspark_jars()
    downloads = target.with_name(f".{target.name}.downloads")
    work = target.with_name(f".{target.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        retrieve(java.path, class_path, declaration.path, confs=confs, into=work, downloads=downloads)
        _check(work, declaration, expected, downloads)
        _write_manifest(work, declaration)
        _publish(work, target, confs)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    # Kept after a failure, so that the next attempt resumes from there.
    shutil.rmtree(downloads, ignore_errors=True)
    found = _complete(target, declaration)
    assert found is not None
    return found


def _check(work: Path, declaration: _Declaration, expected: dict[str, str], downloads: Path) -> None:
    try:
        check_sums(sums_of(work, declaration.confs), expected, declaration.path)
    except UserError:
        # The next attempt must not take the same jar from Ivy's cache.
        shutil.rmtree(downloads, ignore_errors=True)
        raise


def _write_manifest(directory: Path, declaration: _Declaration) -> None:
    manifest: dict[str, object] = {"ivy_sha256": declaration.sha256}
    for conf in declaration.confs:
        jars = sorted((directory / conf).glob("*.jar"))
        if not jars:
            raise UserError(f"Ivy fetched no jar for the configuration {conf}: check the declaration")
        manifest[conf] = {jar.name: jar.stat().st_size for jar in jars}
    (directory / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _publish(work: Path, target: Path, confs: Sequence[str]) -> None:
    """Move the fetched tree to its target; the old manifest is removed first, and the new one comes last."""
    target.mkdir(parents=True, exist_ok=True)
    (target / _MANIFEST).unlink(missing_ok=True)
    for conf in confs:
        shutil.rmtree(target / conf, ignore_errors=True)
        (work / conf).rename(target / conf)
    (work / _MANIFEST).rename(target / _MANIFEST)


def _refuse_foreign(target: Path, confs: Sequence[str]) -> None:
    """Refuse to replace directories with other files than jars: KQUOTA_JARS may name any directory."""
    for conf in confs:
        if any(path.suffix != ".jar" for path in (target / conf).glob("*")):
            msg = f"{target / conf} holds other files than jars: set KQUOTA_JARS to an empty directory"
            raise UserError(msg)


def pyspark_jars() -> Path:
    """The jars directory of the installed PySpark.

    Raises:
        UserError: PySpark is not installed.
    """
    # find_spec of a top-level package does not import it: importing pyspark takes seconds.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"PySpark is needed to fetch the jars and is not installed: {install_text('spark')}")
    return Path(next(iter(spec.submodule_search_locations))) / "jars"


@contextlib.contextmanager
def _only_one(target: Path) -> Iterator[None]:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f".{target.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("jars: another process is fetching them, waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def has_spark_jars(directory: Path) -> bool:
    """Whether PySpark's own directory has all jars that `link_into_pyspark` links there, readable for this user."""
    listed = (name.partition("/") for name in parse_sums(read_sums(IVY_XML), IVY_XML))
    shipped = {_artifact(jar.name) for jar in directory.glob("*.jar") if not jar.is_symlink()}
    return all(
        _artifact(name) in shipped or os.access(directory / name, os.R_OK)
        for conf, _, name in listed
        if conf == "spark"
    )


def link_into_pyspark(jars: Sequence[Path], directory: Path) -> None:
    """Link jars into PySpark's own directory, and remove the links of an earlier set.

    An artifact that PySpark ships is not linked: a second version would shadow the one that Spark was built with.
    """
    wanted = {jar.name: jar for jar in jars}
    present = list(directory.glob("*.jar"))
    shipped = {_artifact(jar.name) for jar in present if not jar.is_symlink()}
    for jar in present:
        is_kept = jar.name in wanted and jar.resolve() == wanted[jar.name].resolve()
        if jar.is_symlink() and not is_kept:
            jar.unlink()
    for name, jar in wanted.items():
        if _artifact(name) not in shipped:
            with contextlib.suppress(FileExistsError):
                (directory / name).symlink_to(jar.resolve())


def _artifact(name: str) -> str:
    match = _ARTIFACT.fullmatch(name)
    return match.group(1) if match else name


def main(arguments: list[str]) -> int:
    """Fetch the jars of the declaration named on the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m kquota_spark.embedded.setup.jars", description=main.__doc__
    )
    parser.add_argument("declaration", nargs="?", type=Path, default=IVY_XML)
    parser.add_argument(
        "--link", action="store_true", help="link those of Spark's job into the installed PySpark"
    )
    parser.add_argument(
        "--lock", action="store_true", help="write the list of their SHA-256 beside a new declaration"
    )
    parser.add_argument("--ivy", type=Path, help="directory with Ivy's jar, before PySpark is installed")
    options = parser.parse_args(arguments)
    ivy_xml = options.declaration
    try:
        if options.lock:
            print(f"jars: their SHA-256 are in {lock_jars(ivy_xml)}")
            return 0
        jars = ensure_jars(ivy_xml, options.ivy)
        counts = f"{len(jars.spark)} for Spark, {len(jars.broker)} for the brokers"
        print(f"jars: {counts} in {cache_dir(ivy_xml)}")
        if options.link:
            link_into_pyspark(jars.spark, pyspark_jars())
    except (UserError, OSError) as error:
        print(f"kquota: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
