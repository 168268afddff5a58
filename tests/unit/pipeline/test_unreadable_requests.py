"""A line that cannot be read charges its bucket an unknown amount, in the job as in the offline replay."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from kquota_spark.model.govern.govern import RequestCoverage, RuleGovernor
from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig
from kquota_spark.model.quotas.rules import RuleBook, rule_periods
from kquota_spark.model.replay.causes import Cause
from kquota_spark.model.replay.replay import Outcome
from kquota_spark.pipeline.charges import charges_of
from kquota_spark.pipeline.ingest import IngestSettings, MessageReader, parsed
from kquota_spark.pipeline.known import gaps_at
from kquota_spark.replay.files import Replay, replay_files
from tests.support.logs.log_lines import FETCH_V12, METADATA_V12, PRODUCE_V9, T0_MS, changed
from tests.support.spark.queries import change

LONG = changed(PRODUCE_V9, ("recordsSizeInBytes", "records\0SizeInBytes"))
"""As kquota ship leaves a line that is too long: the size stands in the middle."""
OTHER = changed(PRODUCE_V9, ("12:00:00,123", "12:00:05,123"), ("User:checkout", "User:other"))
LATER = changed(PRODUCE_V9, ("12:00:00,123", "12:00:11,000"))
AFTERWARDS = changed(PRODUCE_V9, ("12:00:00,123", "12:00:13,000"))
# 3.2 MB in ten seconds are far above one produce of 16,433 bytes.
LIMITED = [change("checkout", None, 320_000.0), change("other", None, 320_000.0)]


def in_table(*lines: bytes) -> pa.RecordBatch:
    """Rows of `requests` of lines that broker 1 wrote."""
    reader = MessageReader(IngestSettings("demo", "UTC", 15_000, 30_000, 1_000))
    count = len(lines)
    messages = pa.RecordBatch.from_pydict(
        {
            "topic": ["log"] * count,
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp_ms": pa.array([T0_MS + 60_000] * count, pa.int64()),
            "written_by_ms": pa.array([T0_MS + 60_000] * count, pa.int64()),
            "value": list(lines),
            "broker": [b"1"] * count,
        }
    )
    return parsed(messages, reader)


def replayed(tmp_path: Path, *lines: bytes) -> Replay:
    log = tmp_path / "broker-1.log"
    log.write_bytes(b"".join(line + b"\n" for line in lines))
    return replay_files([(1, log)], RuleGovernor(RuleBook(rule_periods(LIMITED))), RateConfig())


def test_a_row_of_an_unreadable_line_has_its_reason_and_charges_a_request_without_a_size() -> None:
    rows = in_table(LONG, METADATA_V12, PRODUCE_V9[:400])
    assert rows.column("kind").to_pylist() == ["unreadable", "request", "unreadable"]
    [long, _, cut] = rows.to_pylist()
    assert (long["user"], long["charged_bytes"], long["record_time_ms"]) == ("checkout", None, T0_MS + 119)
    assert (cut["log_time_ms"], cut["api_key"], cut["quota_type"]) == (T0_MS + 123, None, None)
    [charge] = charges_of(rows, RequestCoverage()).to_pylist()
    assert (charge["user"], charge["amount"], charge["kind"]) == ("checkout", 0, PointKind.UNSIZED)
    # Of everybody thread time is charged, which stands at the end of the line.
    thread_times = charges_of(rows, RequestCoverage(is_everyone=True)).to_pylist()[1:]
    assert [(each["kind"], each["amount"]) for each in thread_times] == [
        (PointKind.SHARED_REQUEST, 1_204), (PointKind.REQUEST, 1_204)
    ]  # fmt: skip


def test_a_request_that_is_out_of_time_is_charged_to_nobody() -> None:
    rows = in_table(changed(LONG, ("2024-11-20 12:00", "2024-11-20 13:00")), LONG)
    assert rows.column("is_out_of_time").to_pylist() == [True, False]
    assert charges_of(rows, RequestCoverage()).num_rows == 1


def outcomes(found: Replay, user: str) -> list[tuple[Outcome, Cause | None]]:
    return [
        (verdict.outcome, verdict.cause)
        for key, verdicts in found.verdicts.items()
        if key.bucket.user == user and key.quota_type.value == "produce"
        for verdict in verdicts
    ]


def started(*lines: bytes) -> tuple[bytes, ...]:
    """A log that begins with its broker."""
    first = changed(METADATA_V12, ("12:00:02", "11:59:00"), ('"correlationId":3', '"correlationId":0'))
    return changed(first, ("51514-27", "51514-0")), *lines


def test_the_bucket_of_an_unreadable_line_is_uncertain_for_as_long_as_a_ring_holds_it(tmp_path: Path) -> None:
    found = replayed(tmp_path, *started(LONG, OTHER, LATER, AFTERWARDS))
    assert (found.lines, sum(found.unreadable.values()), found.counted) == (5, 1, 3)
    uncertain = (Outcome.UNCERTAIN, Cause.UNSIZED)
    assert outcomes(found, "checkout") == [uncertain, uncertain, (Outcome.AGREES, None)]
    assert outcomes(found, "other") == [(Outcome.AGREES, None)]


def test_after_a_line_that_was_cut_nobody_on_its_broker_is_certain_for_as_long(tmp_path: Path) -> None:
    after_gap = changed(PRODUCE_V9, ("12:00:00,123", "12:00:22,100"))
    found = replayed(tmp_path, *started(PRODUCE_V9[:400], OTHER, AFTERWARDS, after_gap))
    # The gap ends at 12:00:10, and 12 s later no ring lacks what was cut.
    gap = (Outcome.UNCERTAIN, Cause.GAP)
    assert outcomes(found, "checkout") == [gap, (Outcome.AGREES, None)]
    assert outcomes(found, "other") == [gap]
    # Fetches of a ring of their own are uncertain too: the line may have been one.
    fetched = replayed(tmp_path, *started(PRODUCE_V9[:400], FETCH_V12))
    assert [verdict.cause for key in fetched.verdicts for verdict in fetched.verdicts[key]] == [Cause.GAP]


def test_what_was_not_charged_leaves_no_gap(tmp_path: Path) -> None:
    found = replayed(tmp_path, *started(METADATA_V12[:400], b"[2024-11-20 12:00:00,123] INFO x", OTHER))
    assert outcomes(found, "other") == [(Outcome.AGREES, None)]


def test_a_point_has_no_other_field_than_that_of_a_readable_line() -> None:
    names = [*Point._fields]
    [sized], [unsized] = (
        charges_of(in_table(line), RequestCoverage()).select(names).to_pylist() for line in (PRODUCE_V9, LONG)
    )
    assert unsized == {**sized, "amount": 0, "kind": PointKind.UNSIZED}


class Looked(tuple[int, int]):
    """A gap that counts how often it is looked at."""

    times = 0

    def __getitem__(self, place: int) -> int:  # type: ignore[override]
        Looked.times += 1
        return super().__getitem__(place)


def test_of_gaps_that_ended_long_ago_few_are_looked_at_for_a_second() -> None:
    # A cut each ten seconds for 28 hours; each reaches 12 s beyond its end.
    gaps = [Looked((at_ms, at_ms + 22_000)) for at_ms in range(0, 100_000_000, 10_000)]
    assert len(gaps) == 10_000
    Looked.times = 0
    # Those that begin at 99,980 s (it ends at 100,002 s) and 99,990 s.
    assert gaps_at(gaps, 99_999_000) == ((99_980_000, 100_002_000), (99_990_000, 100_012_000))
    # 14 halvings of 10,000, and one look at each of the two that are left.
    assert Looked.times <= 16


def test_a_gap_reaches_into_a_second_that_it_touches() -> None:
    gaps = [(0, 500), (900, 1_000), (900, 1_001), (1_999, 3_000), (2_000, 3_000)]
    assert gaps_at(gaps, 1_000) == ((900, 1_001), (1_999, 3_000))
