"""The impact of real edits of quotas: the total delay predicted from the time before, and the one measured after.

The prediction is that of `kquota whatif`: the recorded requests of the 24 h before the edit, under the new value, in
the closed loop with its bounds. It is compared with the brokers' own total delay of the same buckets, over the same
length of time after the edit. The first 12 s after it are left out, because the windows still hold requests from before
it. So the prediction leaves out the first 12 s under the new value too. Both times are shorter if the tables are, or if
the same quota was edited again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from kquota_spark.config.governor import make_governor
from kquota_spark.config.settings import Settings
from kquota_spark.model.govern.govern import Governor
from kquota_spark.model.loops.tried import Key
from kquota_spark.model.quotas.entities import Entity, parse_entity
from kquota_spark.model.quotas.quota_types import AnyKey, QuotaKey
from kquota_spark.model.quotas.rules import BEGINNING_MS, RuleBook, RulePeriod
from kquota_spark.quotas.sources import QuotaHistory, from_tables
from kquota_spark.reports.clients.linked_clients import Span, identities, linked_clients
from kquota_spark.reports.clients.what_if import WARM_UP_MS, Difference, what_if
from kquota_spark.schema import harm
from kquota_spark.schema.key_columns import FROM_LOG
from kquota_spark.schema.shadow_tables import EDIT_IMPACT
from kquota_spark.store.reading import Tables

DAY_MS = 86_400_000
SETTLE_MS = 12_000
"""Time after an edit that is left out, ms: what the default window remembers."""
LEAST_MS = 30_000
"""Shortest time before and after an edit that is compared, ms."""
CLOSED, OPEN = "closed loop", "open loop"
_EDITS = """
select entity, key, previous_value, value, epoch_ms(coalesce(changed_before, changed_at)) as at_ms, source
from quota_changes where cluster_id = ? and problem is null order by at_ms, entity, key
"""
_EXTENT = (
    f"select epoch_ms(min(second)), epoch_ms(max(second)) from usage where cluster_id = ? and {FROM_LOG}"  # noqa: S608 - a condition of ours
)
_MEASURED = f"""
select coalesce(sum({harm.DELAY_MS}), 0)::bigint from decisions
where cluster_id = ? and {FROM_LOG} and second >= make_timestamptz(?::bigint) and second < make_timestamptz(?::bigint)
  and (quota_type, bucket_user, bucket_client_id) in (
    select (quota_type, "user", client_id) from (select unnest(?, recursive := true)))
"""  # noqa: S608 - names of ours
_STORED = """
select entity, key, epoch_ms(edit_impact.at) as at_ms, value_before, value_after, window_s, buckets, before_ms,
       predicted_ms, low_ms, high_ms, measured_ms, method
from edit_impact where cluster_id = ?
"""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of one key of users or client ids; None is not set."""

    entity: Entity
    key: QuotaKey
    before: float | None
    after: float | None
    at_ms: int
    """When brokers applied it, epoch ms."""


@dataclass(frozen=True, slots=True)
class Impact:
    """What was predicted of an edit, and what was measured; delays are sums in ms."""

    edit: Edit
    window_s: int
    buckets: int
    before_ms: int
    predicted_ms: int
    low_ms: int
    high_ms: int | None
    measured_ms: int
    method: str
    is_complete: bool = True
    """Whether the time after the edit has ended."""

    @property
    def error_percent(self) -> float | None:
        """How much the prediction is above what was measured; None if nothing was measured."""
        if not self.measured_ms:
            return None
        return 100 * (self.predicted_ms - self.measured_ms) / self.measured_ms

    @property
    def is_within(self) -> bool:
        """Whether the measured delay is within the bound."""
        return self.low_ms <= self.measured_ms and (self.high_ms is None or self.measured_ms <= self.high_ms)


@dataclass(frozen=True, slots=True)
class _Window:
    length_ms: int
    is_complete: bool


class Impacts:
    """The edits of one cluster, and the impact of each; it reads the tables when it is made."""

    def __init__(self, settings: Settings) -> None:
        """Read the edits and the extent of the tables.

        Raises:
            UserError: a table is missing or cannot be read.
        """
        self._history: QuotaHistory = from_tables(settings)
        cluster_id = self._history.cluster_id or settings.cluster_id
        self._settings = settings.changed(cluster_id=cluster_id)
        with Tables(self._settings) as tables:
            for name in ("quota_changes", "usage"):
                tables.open(name)
            rows = tables.query(_EDITS, [cluster_id]).dicts()
            self._first_ms, self._last_ms = tables.query(_EXTENT, [cluster_id]).rows[0]
            self._stored = _stored(tables, cluster_id)
        self.edits = sorted(_edits(rows, settings.quotas.apply_lag), key=lambda edit: edit.at_ms)

    @property
    def cluster_id(self) -> str:
        """The cluster of the edits."""
        return self._settings.cluster_id

    def of(self, edit: Edit) -> Impact | None:
        """The impact of an edit: the stored one, else computed; None if there is too little traffic around it."""
        stored = self._stored.get(_key(edit))
        if stored is not None:
            return stored
        window = self._window(edit)
        return None if window.length_ms < LEAST_MS else self._computed(edit, window)

    def of_complete(self, edit: Edit) -> Impact | None:
        """The impact of an edit if the time after it has ended; else None, and nothing is computed."""
        return self.of(edit) if self._window(edit).is_complete else None

    def newest(self, from_ms: int | None, to_ms: int | None, most: int | None) -> tuple[list[Impact], int]:
        """The impacts of the newest edits of a period, newest first.

        Args:
            from_ms: beginning of the period, epoch ms; None for no bound.
            to_ms: its end, exclusive; None for no bound.
            most: maximum number of impacts; None for all.

        Returns:
            The impacts, and the number of edits among them with too little traffic before or after.
        """
        found: list[Impact] = []
        skipped = 0
        for edit in reversed(self.edits):
            is_before = from_ms is not None and edit.at_ms < from_ms
            if is_before or (to_ms is not None and edit.at_ms >= to_ms):
                continue
            if len(found) == most:
                break
            impact = self.of(edit)
            if impact is None:
                skipped += 1
            else:
                found.append(impact)
        return found, skipped

    def is_stored(self, edit: Edit) -> bool:
        """Whether the table has the impact of an edit."""
        return _key(edit) in self._stored

    def _window(self, edit: Edit) -> _Window:
        if self._first_ms is None:
            return _Window(0, is_complete=False)
        same = [each.at_ms for each in self.edits if (each.entity, each.key) == (edit.entity, edit.key)]
        before = max((at_ms for at_ms in same if at_ms < edit.at_ms), default=BEGINNING_MS)
        following = min((at_ms for at_ms in same if at_ms > edit.at_ms), default=None)
        newest_ms = self._last_ms + 1_000
        ends_ms = newest_ms if following is None else min(newest_ms, following)
        after_ms = ends_ms - edit.at_ms - SETTLE_MS
        before_ms = compared_before_ms(edit.at_ms, self._first_ms, before)
        length_ms = min(DAY_MS, before_ms, after_ms) // 1_000 * 1_000
        is_complete = after_ms >= DAY_MS or (following is not None and following <= newest_ms)
        return _Window(max(length_ms, 0), is_complete)

    def _computed(self, edit: Edit, window: _Window) -> Impact:
        settings, history, length_ms = self._settings, self._history, window.length_ms
        from_ms = edit.at_ms - length_ms
        recorded = make_governor(settings, history.book, history.leaders)
        tried = make_governor(settings, with_edit(history.book, edit), history.leaders)
        wanted = _wanted(settings, edit.entity, (recorded, tried), (from_ms, edit.at_ms))
        found = what_if(settings, recorded, tried, from_ms, edit.at_ms, wanted=wanted, settle_ms=SETTLE_MS)
        changed = [each for each in found.differences if _is_concerned(each)]
        delays = [_delays(each) for each in changed]
        highs = [high for _, _, high in delays]
        is_open = any(each.closed is None for each in changed if each.after is not None)
        after_ms = edit.at_ms + SETTLE_MS
        return Impact(
            edit=edit,
            window_s=length_ms // 1_000,
            buckets=len(changed),
            before_ms=sum(_logged_ms(each) for each in changed),
            predicted_ms=sum(predicted for predicted, _, _ in delays),
            low_ms=sum(low for _, low, _ in delays),
            high_ms=None if None in highs else sum(high for high in highs if high is not None),
            measured_ms=_measured_ms(settings, changed, after_ms, after_ms + length_ms),
            method=OPEN if is_open else CLOSED,
            is_complete=window.is_complete,
        )


def compared_before_ms(edit_ms: int, first_ms: int, earlier_ms: int) -> int:
    """How long a time before an edit can be compared, ms.

    It is counted after 12 s under the new value. At their beginning the windows must be full, with requests under the
    earlier value only: an emptier window gives shorter throttles than the edit did. So 24 s are left out after the
    earlier edit or the first request. If less than 30 s would remain, only the 12 s after an earlier edit are.

    Args:
        edit_ms: the edit, epoch ms.
        first_ms: the first request in the tables, epoch ms.
        earlier_ms: the edit of the same quota before it, epoch ms; `BEGINNING_MS` without one.
    """
    full_ms = edit_ms - max(first_ms, earlier_ms) - 2 * SETTLE_MS
    if full_ms >= LEAST_MS:
        return full_ms
    return edit_ms - max(first_ms, earlier_ms + SETTLE_MS if earlier_ms > BEGINNING_MS else 0)


def with_edit(book: RuleBook, edit: Edit) -> RuleBook:
    """The same quotas, but with the value of the edit at all times."""
    rules = book.of(edit.entity) or (RulePeriod(edit.entity, {}, BEGINNING_MS, None, None),)
    return book.replaced({edit.entity: [replace(rule, values=_values(rule.values, edit)) for rule in rules]})


def _values(values: Mapping[AnyKey, float], edit: Edit) -> dict[AnyKey, float]:
    others = {key: value for key, value in values.items() if key is not edit.key}
    return others if edit.after is None else {**others, edit.key: edit.after}


def _edits(rows: Iterable[Mapping[str, Any]], zookeeper_lag_ms: int) -> Iterator[Edit]:
    keys = {key.value: key for key in QuotaKey}
    for row in rows:
        entity, key = parse_entity(row["entity"]), keys.get(row["key"])
        is_change = row["previous_value"] != row["value"] and row["at_ms"] > BEGINNING_MS
        lag_ms = zookeeper_lag_ms if row["source"] == "zookeeper" else 0
        if isinstance(entity, Entity) and key is not None and is_change:
            yield Edit(entity, key, row["previous_value"], row["value"], row["at_ms"] + lag_ms)


def _key(edit: Edit) -> tuple[str, str, int]:
    return str(edit.entity), edit.key.value, edit.at_ms


def _wanted(
    settings: Settings, entity: Entity, governors: Sequence[Governor], period: Span
) -> Mapping[Key, Sequence[Span]] | None:
    """The buckets of the clients that an entity can govern, with the period to read; None for those of all clients.

    Args:
        settings: where the tables are, and the cluster.
        entity: the entity.
        governors: the quotas before and after its edit.
        period: the period to judge.
    """
    user, client_id = (name if isinstance(name, str) else "" for name in (entity.user, entity.client_id))
    if not user and not client_id:
        return None
    read = period[0] - WARM_UP_MS, period[1]
    seen = identities(settings, *read)
    governed = [one for one in seen if user in {"", one.client[0]} and client_id in {"", one.client[1]}]
    found = [one.buckets for one in linked_clients(governed, governors, read)]
    known = [buckets for buckets in found if buckets is not None]
    return None if len(known) < len(found) else {key: [read] for buckets in known for key in buckets}


def _is_concerned(each: Difference) -> bool:
    """Whether an edit changes a bucket: its limit, its requests, or its delay in the closed loop."""
    limits = [None if side is None else side.limit_per_s for side in (each.before, each.after)]
    requests = [None if side is None else side.requests for side in (each.before, each.after)]
    return limits[0] != limits[1] or requests[0] != requests[1] or each.is_changed


def _delays(each: Difference) -> tuple[int, int, int | None]:
    """The predicted total delay of a bucket, and its bounds (ms)."""
    if each.closed is not None:
        return each.closed.throttled_ms, each.closed.delay.low, each.closed.delay.high
    open_ms = 0 if each.after is None else each.after.throttled_ms
    return open_ms, open_ms, open_ms


def _logged_ms(each: Difference) -> int:
    if each.logged is not None:
        return each.logged.throttled_ms
    return 0 if each.before is None else each.before.throttled_ms


def _measured_ms(settings: Settings, changed: Sequence[Difference], from_ms: int, to_ms: int) -> int:
    """The brokers' total delay (ms) of these buckets in a time."""
    keys = [
        {"quota_type": each.quota_type.value, "user": each.bucket.user, "client_id": each.bucket.client_id}
        for each in changed
    ]
    if not keys:
        return 0
    with Tables(settings) as tables:
        tables.open("decisions", from_ms)
        asked = [settings.cluster_id, from_ms * 1_000, to_ms * 1_000, keys]
        return int(tables.query(_MEASURED, asked).rows[0][0])


def _stored(tables: Tables, cluster_id: str) -> dict[tuple[str, str, int], Impact]:
    if not tables.open_if_there(EDIT_IMPACT.name):
        return {}
    found = {}
    for row in tables.query(_STORED, [cluster_id]).dicts():
        entity = parse_entity(row.pop("entity"))
        if isinstance(entity, Entity):
            edit = Edit(
                entity,
                QuotaKey(row.pop("key")),
                row.pop("value_before"),
                row.pop("value_after"),
                row.pop("at_ms"),
            )
            found[_key(edit)] = Impact(edit, **row)
    return found


def impact_rows(cluster_id: str, impacts: Iterable[Impact]) -> list[dict[str, Any]]:
    """Rows of `edit_impact`; times in epoch ms."""
    return [
        {
            "cluster_id": cluster_id,
            "event_date": datetime.fromtimestamp(each.edit.at_ms / 1_000, UTC).date(),
            "entity": str(each.edit.entity),
            "key": each.edit.key.value,
            "at": each.edit.at_ms,
            "value_before": each.edit.before,
            "value_after": each.edit.after,
            **{
                name: getattr(each, name)
                for name in EDIT_IMPACT.names
                if name in Impact.__slots__ or name == "error_percent"
            },
        }
        for each in impacts
    ]


def day_of(edit: Edit) -> date:
    """The UTC date of an edit."""
    return datetime.fromtimestamp(edit.at_ms / 1_000, UTC).date()
