"""Files of `requests` that came since a version: found in the log of the table, at a small file a commit."""

from __future__ import annotations

from typing import NamedTuple

from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.tables import REQUESTS
from kquota_spark.store.following import DeltaCommits, NewCommits
from kquota_spark.store.storage import delta_table


class Unseen(NamedTuple):
    """What is new at a version; `paths` as the log names them, None where it does not say and all files may be."""

    version: int
    paths: tuple[str, ...] | None


def unseen_requests(settings: Settings, seen: int | None) -> Unseen:
    """The files with rows that came after a version.

    Args:
        settings: where the tables are.
        seen: the version; None for none.

    Raises:
        UserError: the table cannot be read.
    """
    commits, paths = DeltaCommits(settings, REQUESTS.name), list[str]()
    if seen is None:
        return Unseen(_looked(commits).version, None)
    commits.read(NewCommits((), None, is_fresh=False, version=seen))
    try:
        while not (found := _looked(commits)).is_fresh:
            if found.version == commits.read_through:
                return Unseen(found.version, _still_there(settings, paths))
            paths += found.paths
            commits.read(found)
    except UserError:
        # Commits of so long ago are not in the log any more.
        return Unseen(_looked(DeltaCommits(settings, REQUESTS.name)).version, None)
    return Unseen(found.version, None)


def _looked(commits: DeltaCommits) -> NewCommits:
    found = commits.look()
    if found is None:
        raise UserError(f"no table {REQUESTS.name}: run the audit first")
    return found


def _still_there(settings: Settings, paths: list[str]) -> tuple[str, ...] | None:
    """The same, unless some were put together to others since."""
    if not paths:
        return ()
    actions = delta_table(settings, REQUESTS.name).get_add_actions(flatten=True)
    return tuple(paths) if set(paths) <= set(actions.column("path").to_pylist()) else None
