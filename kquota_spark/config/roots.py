"""Valid roots of tables and checkpoints: paths and URIs under which Spark, deltalake and Arrow open the same files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

STORES = {
    "s3a": "s3a://BUCKET/PATH",
    "abfss": "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
    "gs": "gs://BUCKET/PATH",
}
"""The form of URIs for each object store that all three libraries open, by scheme."""
AZURE_KEY, AZURE_TOKEN = "azure_storage_account_key", "azure_storage_sas_token"
GOOGLE_KEY_FILE = "google_service_account"
"""Names of deltalake's options, in lower case, that reach all three libraries."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_FORMS = {
    "s3a": re.compile(r"s3a://[^/@:]+(/.*)?"),
    "abfss": re.compile(r"abfss://[^/@:]+@[^/@:.]+\.dfs\.[^/@:]+(/.*)?"),
    "gs": re.compile(r"gs://[^/@:]+(/.*)?"),
}
_EXPECTED = f"expected a path on this machine, or a URI of {', '.join(STORES)}"
_NOT_ALIKE = re.compile(r"[%\[\]{}\\|^\x00-\x1f\x7f]")
"""Characters of a path that one of the three reads as a pattern, an escape or a separator."""
_CREDENTIAL = re.compile("key|token|secret|client|tenant|authority|identity|credential|service_account|msi")
_REACHING: dict[str, tuple[str, ...]] = {"abfss": (AZURE_KEY, AZURE_TOKEN), "gs": (GOOGLE_KEY_FILE,)}


def scheme_of(place: str) -> str:
    """The scheme of a path or URI in lower case: empty for a path, `file` for the URI of a path."""
    found = _SCHEME.match(place)
    return found.group(1).lower() if found else ""


def local_path(place: str) -> Path | None:
    """A path or URI as a path of this machine; None for an object store."""
    scheme = scheme_of(place)
    if scheme == "file":
        return Path("/" + unquote(urlsplit(place).path).lstrip("/"))
    return None if scheme else Path(place)


def canonical_root(root: str) -> str:
    """A root of tables or checkpoints in the form that all three libraries read alike.

    `file:/data`, `file:///data` and `/data` are the same root, and become the plain path.

    Args:
        root: as a user writes it.

    Raises:
        ValueError: not all three open it; the message names the mistake and the expected form.
    """
    scheme = scheme_of(root)
    if scheme in ("", "file"):
        return _canonical_path(root, scheme)
    if scheme not in STORES:
        hint = ": write s3a://" if scheme in ("s3", "s3n") else ""
        raise ValueError(f"scheme {scheme} is not supported, {_EXPECTED}{hint}")
    canonical = scheme + root[len(scheme) :]
    if not _FORMS[scheme].fullmatch(canonical):
        # Not shown: old forms have a key before the bucket.
        raise ValueError(f"not the form of a URI of {scheme}, expected {STORES[scheme]}")
    return canonical


def _canonical_path(root: str, scheme: str) -> str:
    path = root
    if scheme:
        uri = urlsplit(root)
        if uri.netloc or uri.query or uri.fragment or not uri.path.startswith("/"):
            raise ValueError(f"{root[:60]!r}, expected file:///PATH, without a host, ? or #")
        path = "/" + unquote(uri.path, errors="strict").lstrip("/")
    if not path.strip():
        raise ValueError(f"nothing, {_EXPECTED}")
    if found := _NOT_ALIKE.search(path):
        raise ValueError(
            f"{root[:60]!r} has {found.group()!r} in it, expected a path without % [ ] {{ }} \\ | ^"
        )
    return path


def unreached_options(roots: Collection[str], options: Collection[str]) -> Iterator[str]:
    """A problem for each login option in `storage_options` that does not reach all three libraries.

    Args:
        roots: the roots of tables and checkpoints.
        options: the names of the options.
    """
    schemes = {scheme_of(root) for root in roots}
    for scheme in sorted(schemes & _REACHING.keys()):
        known = " or ".join(name.upper() for name in _REACHING[scheme])
        for name in options:
            is_of_others = name.lower().startswith(("fs.", "aws_")) or name.lower() in _REACHING[scheme]
            if not is_of_others and _CREDENTIAL.search(name.lower()):
                yield (
                    f"storage_options.{name}: does not reach all nodes with {scheme}://, expected "
                    f"{known}, or the login of the environment on each node"
                )


def azure_account(place: str) -> tuple[str, str, str]:
    """The account of an abfss URI, its host, and the path that begins with the container."""
    uri = urlsplit(place)
    container, _, host = uri.netloc.rpartition("@")
    return host.partition(".")[0], host, f"{container}{uri.path}"
