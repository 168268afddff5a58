"""Where tables and checkpoints are: each path or URI of one is built here, from a root of the settings and a name."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit


def local_path(root: str) -> Path | None:
    """A root of the settings as a path of this machine; None for an object store."""
    if root.startswith("file:"):
        return Path(unquote(urlsplit(root).path))
    return None if "://" in root else Path(root)


def trimmed(root: str) -> str:
    """A root without slashes at its end."""
    return root.rstrip("/") or "/"


def place_of(root: str, name: str) -> str:
    """The path or URI of a table, the checkpoint of a query, or a file beside them, by its name."""
    return f"{root.rstrip('/')}/{name}"


def local_place_of(root: str, name: str) -> Path | None:
    """The same as a path of this machine; None for an object store."""
    local = local_path(root)
    return None if local is None else local / name
