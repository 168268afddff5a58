"""One request of a decision, as a chain: its line, its bytes, its sample, the rate, the limit and the throttle."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from kquota_spark.evidence.lines import Charge, Line
from kquota_spark.evidence.rebuilding import Rebuilt
from kquota_spark.formats.text.escape import entity_text, terminal_text
from kquota_spark.formats.text.person_units import (
    amount_text,
    bucket_text,
    iso_time,
    person_name,
    rate_text,
)
from kquota_spark.model.measure.points import UNSIZED_KINDS, Point, PointKind
from kquota_spark.model.measure.sampled_rate import SampleRing
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.model.replay.replay import Outcome, Verdict
from kquota_spark.model.replay.request_replay import US_PER_PERCENT
from kquota_spark.store.reading import utc_text

_THROTTLED_FETCHES = (PointKind.THROTTLED_FETCH, PointKind.THROTTLED_SHARE_FETCH)
_CERTAINTY = {
    Outcome.AGREES: "certain, and the broker decided the same",
    Outcome.FALSE_POSITIVE: "certain by replay, but the broker did not throttle it",
    Outcome.FALSE_NEGATIVE: "certain by replay, but the broker did throttle it",
    Outcome.INFERRED: "taken from the broker's own throttle, because the log lacks the bytes",
    Outcome.EXCLUDED: "not compared: two quotas cover this client, and the log has the longer throttle",
}


class Sample(NamedTuple):
    """A sample of the broker's ring; times in epoch ms, the amount in the unit of points."""

    start_ms: int
    last_ms: int
    amount: int


class Chain(NamedTuple):
    """One request of a decision, and how the broker came to its throttle.

    Attributes:
        row: the decision, with the columns of `rebuilding.NAMES`.
        line: the log line of the request.
        verdict: the verdict on it.
        samples: the samples of the ring that includes it, oldest first; none for controller mutations.
    """

    row: dict[str, Any]
    line: Line
    verdict: Verdict
    samples: list[Sample]

    @property
    def total(self) -> int:
        """The amount in the ring, with this request."""
        return sum(sample.amount for sample in self.samples)


def chosen_place(verdicts: Sequence[Verdict], own: Collection[Point]) -> int:
    """The place of the tenant's request that was throttled longest, or was nearest to its limit.

    Args:
        verdicts: all verdicts of the second.
        own: the tenant's requests; if none of them is among the verdicts, every request counts.
    """
    places = [place for place, verdict in enumerate(verdicts) if verdict.point in own]

    def weight(place: int) -> tuple[int, int, float]:
        verdict = verdicts[place]
        limit = verdict.governing.limit_per_s
        share = verdict.rate_per_s / limit if limit else 0.0
        return verdict.throttle_ms, verdict.point.observed_throttle_ms, share

    return max(places or range(len(verdicts)), key=weight)


def chain_of(rebuilt: Rebuilt, lines: Sequence[Line], charged: Sequence[Charge], place: int) -> Chain:
    """The chain of one request.

    Args:
        rebuilt: the decision.
        lines: the log lines.
        charged: what they charge.
        place: place of the request among the verdicts.
    """
    verdict = rebuilt.verdicts[place]
    of_line = next(charge.place for charge in charged if charge.point == verdict.point)
    return Chain(rebuilt.row, lines[of_line], verdict, _samples(rebuilt, place))


def _samples(rebuilt: Rebuilt, place: int) -> list[Sample]:
    """The samples of the broker's ring when it has recorded the request; none of a token bucket."""
    if rebuilt.row["quota_type"] == QuotaType.CONTROLLER_MUTATION:
        return []
    state = None if rebuilt.before is None else rebuilt.before[1]
    ring = SampleRing(rebuilt.config, None if state is None else (state[0], *map(list, state[1:])))
    for verdict in rebuilt.verdicts[: place + 1]:
        ring.record(verdict.point.amount, verdict.point.record_time_ms)
    _, amounts, starts_ms, last_ms = ring.state
    return sorted(map(Sample, starts_ms, last_ms, amounts))


def chain_text(chain: Chain) -> Iterator[tuple[str, str]]:
    """Labels and sentences for the tenant, escaped for a terminal."""
    row, line, verdict = chain.row, chain.line, chain.verdict
    quota_type = row["quota_type"]
    time_ms = verdict.point.record_time_ms
    position = f"topic {line['topic']}, partition {line['partition']}, offset {line['kafka_offset']:,}"
    who = f"{person_name(line['user'])} / {person_name(line['client_id'])}"
    yield (
        "line",
        terminal_text(f"{line['api_name'] or 'request'} of {who}, recorded at {_time(time_ms)}; {position}"),
    )
    yield "bytes" if quota_type in BANDWIDTH else "charge", _bytes_text(quota_type, verdict.point)
    if chain.samples:
        first_ms = chain.samples[0].start_ms
        held = amount_text(quota_type, chain.total)
        yield "sample", f"{len(chain.samples)} samples since {_time(first_ms)} hold {held}, with this request"
    yield "rate", _rate_text(chain)
    yield "limit", _limit_text(row)
    yield "throttle", _throttle_text(quota_type, verdict)
    yield "verdict", f"uncertain: {verdict.cause.value}" if verdict.cause else _CERTAINTY[verdict.outcome]


def title_of(row: dict[str, Any]) -> str:
    """What the decision is about, escaped for a terminal."""
    bucket = bucket_text(row["bucket_user"], row["bucket_client_id"], row["bucket_tags"])
    where = "the active controller" if row["broker_id"] < 0 else f"broker {row['broker_id']}"
    return terminal_text(
        f"{row['quota_type']} quota of {bucket} on {where}, second {utc_text(row['second_ms'])}"
    )


def _time(time_ms: int) -> str:
    """`20:03:31.163`."""
    return f"{iso_time(time_ms // 1_000 * 1_000)[11:19]}.{time_ms % 1_000:03}"


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1_000:,.3f} s"


def _exact(quota_type: str, value: float) -> str:
    """A rate or an amount with all digits that the arithmetic needs, and its unit."""
    if quota_type in BANDWIDTH:
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    return f"{value:,.6g}"


def _bytes_text(quota_type: str, point: Point) -> str:
    if point.kind in _THROTTLED_FETCHES:
        return "not in the log: the broker took back the bytes of a throttled fetch"
    if point.kind in UNSIZED_KINDS:
        return "the log does not contain the size of this request"
    text = amount_text(quota_type, point.amount)
    if quota_type in BANDWIDTH:
        return f"{text} ({point.amount:,} bytes), as the broker counts them"
    if quota_type == QuotaType.REQUEST:
        return f"{text} on handler threads ({point.amount / US_PER_PERCENT:.4g} % of one for a second)"
    return f"{text} {'partition' if point.amount == 1 else 'partitions'}"


def _rate_text(chain: Chain) -> str:
    row, verdict = chain.row, chain.verdict
    rate = rate_text(row["quota_type"], verdict.rate_per_s)
    window = _seconds(verdict.window_ms)
    if not chain.samples:
        return f"{rate}, the part of the token bucket that is taken, over {window}"
    if verdict.outcome is Outcome.INFERRED:
        return f"{rate} in {window}, from the broker's throttle"
    bound = verdict.rate_at_most_per_s
    if bound is not None:
        most = rate_text(row["quota_type"], bound)
        return f"{amount_text(row['quota_type'], chain.total)} in {window}: {rate}, at most {most}"
    return f"{chain.total:,} bytes / {window} = {_exact(row['quota_type'], verdict.rate_per_s)} B/s ({rate})"


def _limit_text(row: dict[str, Any]) -> str:
    if row["limit_per_s"] is None:
        return "none: no quota limits this bucket"
    rule = entity_text(row["rule"] or "-")
    level = "" if row["level"] is None else f", level {row['level']}"
    version = "" if row["rule_version"] is None else f", version {row['rule_version']}"
    return f"{rate_text(row['quota_type'], row['limit_per_s'])}: rule {rule}{level}{version}"


def _throttle_text(quota_type: str, verdict: Verdict) -> str:
    limit = verdict.governing.limit_per_s
    observed = f"the broker logged {verdict.point.observed_throttle_ms:,} ms"
    if limit is None or not verdict.throttle_ms:
        return f"0 ms by replay, because the rate is not above the limit; {observed}"
    if verdict.outcome is Outcome.INFERRED:
        return f"{verdict.throttle_ms:,} ms, as the broker logged"
    over, of = _exact(quota_type, verdict.rate_per_s), _exact(quota_type, limit)
    if quota_type == QuotaType.CONTROLLER_MUTATION:
        return f"{verdict.throttle_ms:,} ms by replay, until the token bucket is at 0 again; {observed}"
    capped = ", at most one sample" if quota_type == QuotaType.REQUEST else ""
    return (
        f"({over} - {of}) / {of} x {_seconds(verdict.window_ms)}{capped} = {verdict.throttle_ms:,} ms by replay; "
        f"{observed}"
    )
