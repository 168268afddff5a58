"""The SHA-256 of each jar, in a list beside the declaration.

A registry proves its jars only with its own checksums. The list is part of the release, so a jar that was replaced in
the registry is refused. Its lines have the form of `sha256sum`: `(cd CACHE && sha256sum -c) < conf/ivy.sha256`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kquota_spark.errors import UserError

_LINE = re.compile(r"([0-9a-f]{64})  (\S+/\S+\.jar)")
_WRITE_IT = "write it with python -m kquota_spark.embedded.setup.jars --lock"


def sums_path(ivy_xml: Path) -> Path:
    """Return the path of the list that belongs to a declaration."""
    return ivy_xml.with_suffix(".sha256")


def read_sums(ivy_xml: Path) -> bytes:
    """Return the text of the list that belongs to a declaration.

    Raises:
        UserError: it cannot be read. Jars that are not listed are never run.
    """
    path = sums_path(ivy_xml)
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror}): it lists the SHA-256 of each jar: {_WRITE_IT} {ivy_xml}"
        raise UserError(msg) from error


def parse_sums(text: bytes, ivy_xml: Path) -> dict[str, str]:
    """Return the SHA-256 in hexadecimal of each jar, by `configuration/file name`.

    Raises:
        UserError: a line is not a SHA-256 and the name of a jar.
    """
    found = {}
    for number, line in enumerate(text.decode(errors="replace").splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            msg = f"{sums_path(ivy_xml)}:{number}: not a SHA-256 and a jar: {_WRITE_IT} {ivy_xml}"
            raise UserError(msg)
        found[match[2]] = match[1]
    return found


def sums_of(directory: Path, confs: Sequence[str]) -> dict[str, str]:
    """Return the SHA-256 in hexadecimal of each jar in a directory, by `configuration/file name`."""
    jars = (jar for conf in confs for jar in sorted((directory / conf).glob("*.jar")))
    return {f"{jar.parent.name}/{jar.name}": hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars}


def check_sums(found: Mapping[str, str], expected: Mapping[str, str], ivy_xml: Path) -> None:
    """Compare the fetched jars with the list.

    Raises:
        UserError: a jar differs, is missing, or is not in the list; the message names the first one.
    """
    path = sums_path(ivy_xml)
    for name in sorted({*found, *expected}):
        here, listed = found.get(name, "no such jar"), expected.get(name, "no such jar")
        if here != listed:
            raise UserError(
                f"{name}: fetched {here}, and {path} lists {listed}: nothing was kept: "
                "check the registry or its mirror, and run it again"
            )


def write_sums(found: Mapping[str, str], ivy_xml: Path) -> Path:
    """Write the list that belongs to a declaration; return its path."""
    path = sums_path(ivy_xml)
    path.write_text("".join(f"{digest}  {name}\n" for name, digest in found.items()), encoding="utf-8")
    return path
