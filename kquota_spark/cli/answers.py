"""Parts that the answers of several commands share: their time and cluster, and values of rows."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kquota_spark.cli.question import Asked
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.model.owners import Owners
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.reading import Tables, utc_text

DAY_MS = 86_400_000


def newest_decision_ms(tables: Tables) -> int:
    """The newest second of `decisions`, epoch ms.

    Args:
        tables: with `decisions` opened.

    Raises:
        UserError: the table is empty.
    """
    newest_ms = tables.newest_ms(DECISIONS.name)
    if newest_ms is None:
        raise UserError("the table decisions is empty: has the audit processed anything yet?")
    return newest_ms


def last_day(tables: Tables) -> Period:
    """The last day of `decisions`, which is opened, to the end of its newest second.

    Raises:
        UserError: the table is empty.
    """
    to_ms = newest_decision_ms(tables) // 1_000 * 1_000 + 1_000
    return Period(to_ms - DAY_MS, to_ms)


def period_of(asked: Asked) -> Period:
    """The period of --since and --until; by default the last day of `decisions`, which is opened.

    Raises:
        UserError: the table is empty, or the period is.
    """
    newest = last_day(asked.tables)
    to_ms = newest.to_ms if asked.wanted.until is None else asked.wanted.until.time_ms
    from_ms = to_ms - DAY_MS if asked.wanted.since is None else asked.wanted.since.time_ms
    require_since(from_ms, to_ms)
    return Period(from_ms, to_ms)


def require_since(from_ms: int, to_ms: int) -> None:
    """Check the beginning of a period against its end, both epoch ms.

    Raises:
        UserError: the period is empty.
    """
    if from_ms >= to_ms:
        raise UserError(
            f"--since {utc_text(from_ms)}: nothing is that new, the tables reach {utc_text(to_ms)}"
        )


def of_one_cluster(asked: Asked, newer_than_ms: int) -> Settings:
    """The settings; if the tables contain only one cluster, with the id of that cluster.

    Args:
        asked: the question; it opens `decisions`.
        newer_than_ms: older rows do not count, epoch ms.
    """
    asked.tables.open(DECISIONS.name, newer_than_ms)
    held = [name for (name,) in asked.tables.query("select distinct cluster_id from decisions limit 2").rows]
    return asked.settings.changed(cluster_id=held[0]) if len(held) == 1 else asked.settings


def require_owner(name: str | None, owners: Owners | None, file: str | Path) -> None:
    """Check the value of --owner.

    Args:
        name: the value; None if it is not given.
        owners: the owners of the file; None without a file.
        file: the file, for the message.

    Raises:
        UserError: there is no file, or no entry of it has this name.
    """
    if name is None:
        return
    if owners is None:
        raise UserError("--owner: the settings name no file of owners: set owners in the settings file")
    if name in owners.names:
        return
    near = get_close_matches(name, owners.names, n=1)
    hint = f", did you mean {near[0]!r}?" if near else f", expected one of {', '.join(owners.names[:20])}"
    raise UserError(f"--owner: {name!r} is no owner in {file}{hint}")


def attributes(one: object, names: Iterable[str]) -> dict[str, Any]:
    """The attributes of an object that are columns of a row; names that it lacks are left out."""
    return {name: getattr(one, name) for name in names if hasattr(one, name)}


def bucket_values(bucket: BucketName | None) -> dict[str, str | None]:
    """The columns that identify a bucket on all brokers; all null for None."""
    if bucket is None:
        return dict.fromkeys(("quota_type", "bucket_user", "bucket_client_id", "bucket_tags"))
    return {
        "quota_type": bucket.quota_type,
        "bucket_user": bucket.user,
        "bucket_client_id": bucket.client_id,
        "bucket_tags": bucket.tags or None,
    }
