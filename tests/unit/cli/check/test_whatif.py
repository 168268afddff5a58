"""What `kquota whatif` prints: brokers' figures before, what fits under a lower limit, clients without a request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kquota_spark.model.measure.points import Point, PointKind
from kquota_spark.model.quotas.entities import Entity
from tests.support.logs.replayed_captures import run
from tests.support.reports.gathered_report import Row, rule
from tests.support.tables.table_rows import T0_MS, decision, usage, write_table

RULES = [
    rule(Entity("alice"), producer_byte_rate=150_000.0, consumer_byte_rate=150_000.0),
    rule(Entity("bob"), producer_byte_rate=150_000.0),
]
LEGEND_OF_UNKNOWN = "?, ?n: of n requests the throttle under another limit is not known, their amount is not"
LEGEND_OF_NO_BUCKET = "-: no value, the quotas do not make this bucket"


def _sent(
    at_s: float, amount: int, kind: PointKind = PointKind.PRODUCE, throttle_ms: int = 0, **changed: Any
) -> Row:
    """A row of usage with one request."""
    time_ms = T0_MS + round(1_000 * at_s)
    point = Point(time_ms, time_ms + 1, 1, time_ms - T0_MS, amount, throttle_ms, int(kind))
    return usage(int(at_s), amount=amount, points=[point._asdict()], **changed)


def _tables(root: Path, *usages: Row) -> Path:
    """Usage, and a second of alice's produce that a broker throttled by 2,100 ms, and the replay by 2,000 ms."""
    write_table(root, "quota_rules", *RULES)
    write_table(root, "usage", *usages)
    throttled = decision(
        throttle_ms=2_000, throttled_requests=1, total_throttle_ms=2_000, observed_throttle_ms=2_100,
        observed_throttled_requests=1, observed_total_throttle_ms=2_100,
    )  # fmt: skip
    write_table(root, "decisions", throttled)
    return root


def _whatif(root: Path, *words: str) -> tuple[int, str, str]:
    return run(["whatif", "--config", str(_settings(root)), *words])


def _unfolded(out: str) -> str:
    """The text without the ends of lines at which the notes were folded."""
    return " ".join(out.split())


def _settings(root: Path) -> Path:
    path = root / "kquota.yaml"
    path.write_text(f"cluster_id: demo\ntables: {json.dumps(str(root))}\n")
    return path


def _lines(out: str, bucket: str) -> list[list[str]]:
    """The cells of the bucket's lines: before, open and closed; the first without type and bucket."""
    lines = out.splitlines()
    [place] = [place for place, line in enumerate(lines) if f"  {bucket}  " in line]
    found = [lines[place].split(f"  {bucket}  ")[1]]
    for line in lines[place + 1 :]:
        if not line.startswith("   "):
            break
        found.append(line)
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in found]


ALICE_SENT = _sent(0, 1_800_000)
BOB_SENT = _sent(0, 1_800_000, user="bob")


def test_the_delay_before_is_the_brokers_and_that_of_the_replay_is_beside_it_in_json(tmp_path: Path) -> None:
    root = _tables(tmp_path, ALICE_SENT)
    words = ("--add", "user=alice,producer_byte_rate=200000")
    code, out, err = _whatif(root, *words)
    assert (code, err) == (0, "")
    # 1,800,000 B in 10 s are 180,000 B/s: 2 s above 150,000, and none above 200,000.
    assert _lines(out, "user alice") == [
        ["before", "150 kB/s", "2.10 s", "1", "1 s", "1.8 MB"],
        ["open", "200 kB/s", "0 ms", "0", "0 s", "1.8 MB", "0 B"],
        ["closed", "200 kB/s", "0 ms", "0", "0 s", "1.8 MB", "0 B"],
    ]
    assert "total delay 2.10 s -> open 0 ms, closed 0 ms" in _unfolded(out)
    rows = json.loads(_whatif(root, *words, "--output", "json")[1])["rows"]
    assert [row["loop"] for row in rows] == ["open", "closed"]
    for row in rows:
        assert (row["delay_by_replay_ms"], row["delay_ms"], row["delay_by_replay_after_ms"]) == (
            2_000, 2_100, 0,
        )  # fmt: skip
        assert (row["fits_percent"], row["is_lower"], row["served_bytes_after"]) == (None, False, 1_800_000)


def test_time_throttled_counts_the_seconds_in_which_a_throttle_still_ran(tmp_path: Path) -> None:
    # Six seconds: the request of second 5 is the last one.
    root = _tables(tmp_path, ALICE_SENT, _sent(5, 0))
    words = ("--add", "user=alice,producer_byte_rate=140000")
    row = json.loads(_whatif(root, *words, "--output", "json")[1])["rows"][0]
    # By brokers 2.1 s from second 0 on. By replay 2 s from 0 on, and from second 5 on until the end.
    assert (row["loop"], row["time_throttled_s"], row["time_throttled_by_replay_s"]) == ("open", 3, 2 + 1)
    # 1,800,000 / 140,000 - 10 s = 2.857 s are 3 s of the clock.
    assert row["time_throttled_by_replay_after_s"] == 3 + 1


def test_without_the_brokers_figure_the_delay_before_is_that_of_the_replay(tmp_path: Path) -> None:
    root = _tables(tmp_path, ALICE_SENT, BOB_SENT)
    _, out, _ = _whatif(root, "--add", "user=bob,producer_byte_rate=200000")
    assert _lines(out, "user bob")[0][:3] == ["before", "150 kB/s", "2.00 s"]
    # Alice's bucket does not change and keeps the brokers' figure: 2.1 + 2.0 s before, 2.1 s after.
    assert "total delay 4.10 s -> open 2.10 s, closed 2.10 s" in _unfolded(out)


def test_under_a_lower_limit_it_prints_what_still_fits_and_no_open_sum(tmp_path: Path) -> None:
    words = ("--add", "user=alice,producer_byte_rate=120000")
    root = _tables(tmp_path / "a", ALICE_SENT)
    code, out, _ = _whatif(root, *words)
    # One window of 10 s under 120,000 B/s holds 1,200,000 B of the 1,800,000: 66.7 %. The only request is served in
    # the closed loop, with a throttle of 1,800,000 / 120,000 s - 10 s = 5 s.
    assert _lines(out, "user alice")[1:] == [
        ["open", "120 kB/s", "more", "1", "1 s", "1.2 MB", "600 kB"],
        ["closed", "120 kB/s", "5.00 s", "1", "1 s", "1.8 MB", "0 B"],
    ]
    assert code == 0 and "total delay 2.10 s -> open more, closed 5.00 s" in _unfolded(out)
    assert "more: at the recorded times the requests pile up" in _unfolded(out)
    row, _ = json.loads(_whatif(root, *words, "--output", "json")[1])["rows"]
    # (180,000 - 120,000) / 120,000 x 10 s
    assert (row["delay_by_replay_after_ms"], row["is_lower"]) == (5_000, True)
    assert row["fits_percent"] == 100 * 1_200_000 / 1_800_000
    # By a request five seconds later, 600,000 B more have passed: all fits.
    root = _tables(tmp_path / "b", ALICE_SENT, _sent(5, 0))
    row, _ = json.loads(_whatif(root, *words, "--output", "json")[1])["rows"]
    assert row["fits_percent"] == 100.0


def test_in_the_closed_loop_a_throttle_defers_what_no_longer_fits_into_the_period(tmp_path: Path) -> None:
    # A throttle of 2 s under 150,000 B/s, then 100 ms of the client's own pace.
    root = _tables(tmp_path, ALICE_SENT, _sent(2.1, 7_000))
    words = ("--add", "user=alice,producer_byte_rate=120000", "--output", "json")
    _, closed = json.loads(_whatif(root, *words)[1])["rows"]
    # Under 120,000 B/s it is 5 s, so the second request would come at 5.1 s. The period ends at 3 s.
    assert (closed["served_bytes_after"], closed["deferred_bytes"]) == (1_800_000, 7_000)
    assert (closed["delay_by_replay_after_ms"], closed["is_censored"]) == (5_000, False)


def test_a_saturated_connection_under_a_higher_limit_is_marked(tmp_path: Path) -> None:
    # 150,000 B/s: the first request is 2 s too much, and each other one waits exactly for the throttle before it.
    times = [0.0, *(2.0 + 0.1 * place for place in range(8))]
    sent = [_sent(at_s, 1_800_000 if at_s == 0 else 15_000) for at_s in times]
    root = _tables(tmp_path, *sent)
    _, out, _ = _whatif(root, "--add", "user=alice,producer_byte_rate=160000")
    assert _lines(out, "user alice")[2][2].startswith(">= ")
    assert ">=: at least; a saturated connection would send more" in _unfolded(out)


def test_a_lower_limit_that_throttles_nothing_is_no_open_sum(tmp_path: Path) -> None:
    root = _tables(tmp_path, _sent(0, 1_000))
    _, out, _ = _whatif(root, "--add", "user=alice,producer_byte_rate=120000")
    assert [line[2] for line in _lines(out, "user alice")[1:]] == ["0 ms", "0 ms"]
    assert "more:" not in out


def test_a_quota_of_thread_time_has_bounds_in_both_loops(tmp_path: Path) -> None:
    # 1.1 to 1.6 s of a thread in 10 s are 11 to 16 %; above 10 % the throttle is 1 s at most.
    point = Point(T0_MS, T0_MS + 1, 1, 1, 900_000, 0, int(PointKind.REQUEST), 700_000)
    root = _tables(tmp_path, usage(0, amount=900_000, quota_type="request", points=[point._asdict()]))
    words = ("--add", "user=alice,request_percentage=10", "--output", "json")
    rows = json.loads(_whatif(root, *words)[1])["rows"]
    # 0.9 s are 9 %: no throttle. 1.6 s are 16 %, 6 s before the cap.
    assert [(row["loop"], row["delay_low_ms"], row["delay_high_ms"]) for row in rows] == [
        ("open", 0, 1_000), ("closed", 0, 1_000),
    ]  # fmt: skip
    assert [row["served_bytes_after"] for row in rows] == [None, None]


def test_thread_time_that_was_not_measured_is_an_error_that_says_what_is_missing(tmp_path: Path) -> None:
    code, out, err = _whatif(_tables(tmp_path, ALICE_SENT), "--add", "user=alice,request_percentage=10")
    assert (code, out) == (1, "")
    assert err.startswith("kquota: the thread time of user alice was not measured from ")


def test_a_quota_of_topic_changes_has_the_open_loop_only(tmp_path: Path) -> None:
    point = Point(T0_MS, T0_MS + 1, 1, 1, 30, 0, int(PointKind.CREATE_TOPIC))
    other = Point(T0_MS + 500, T0_MS + 501, 2, 2, 5, 0, int(PointKind.CREATE_TOPIC))
    points = [each._asdict() for each in (point, other)]
    root = _tables(
        tmp_path, usage(0, amount=35, quota_type="controller_mutation", broker_id=-1, points=points)
    )
    _, out, err = _whatif(root, "--add", "user=alice,controller_mutation_rate=2", "--output", "json")
    [row] = json.loads(out)["rows"]
    # 22 tokens - 30 = -8, and -7 half a second later: 3.5 s until 0.
    assert (row["loop"], row["throttled_requests_by_replay_after"], row["delay_by_replay_after_ms"]) == (
        "open",
        1,
        3_500,
    ), err


def test_buckets_that_do_not_change_are_counted_and_shown_on_demand(tmp_path: Path) -> None:
    root = _tables(tmp_path, ALICE_SENT, BOB_SENT)
    words = ("--add", "user=alice,producer_byte_rate=200000")
    _, out, _ = _whatif(root, *words)
    assert "user bob" not in out
    assert "1 of 2 buckets change, 1 unchanged (--limit 0 shows them); 2 requests from " in _unfolded(out)
    _, out, _ = _whatif(root, *words, "--limit", "0")
    assert _lines(out, "user bob") == [["150 kB/s", "2.00 s", "1", "1 s", "1.8 MB"]]
    rows = json.loads(_whatif(root, *words, "--output", "json")[1])["rows"]
    assert [(row["bucket_user"], row["is_changed"]) for row in rows] == [
        ("alice", True), ("alice", True), ("bob", False), ("bob", False),
    ]  # fmt: skip


def test_where_nothing_changes_it_says_so(tmp_path: Path) -> None:
    root = _tables(tmp_path, ALICE_SENT)
    code, out, _ = _whatif(root, "--add", "user=alice,producer_byte_rate=150000")
    assert (code, out.startswith("no difference: nothing changes in 1 bucket; 1 request")) == (0, True)


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ("user=nobody,producer_byte_rate=1", "no request of user nobody from "),
        ("user=alice,client-id=web,producer_byte_rate=1", "no request of user alice, client id web from "),
        ("user=bob,consumer_byte_rate=1", "no fetch request of user bob from "),
        ("user=a\x1b[31m,producer_byte_rate=1", "no request of user a\\x1b[31m from "),
    ],
)
def test_a_quota_of_a_client_without_requests_is_an_error(tmp_path: Path, added: str, message: str) -> None:
    code, out, err = _whatif(_tables(tmp_path, ALICE_SENT, BOB_SENT), "--add", added)
    assert (code, out) == (1, "")
    assert err.startswith(f"kquota: {message}")


@pytest.mark.parametrize(
    "added", ["user=<default>,producer_byte_rate=1", "client-id=etl,producer_byte_rate=1"]
)
def test_a_default_and_a_client_id_of_any_user_have_requests(tmp_path: Path, added: str) -> None:
    assert _whatif(_tables(tmp_path, ALICE_SENT), "--add", added)[0] == 0


def test_a_mark_is_explained_only_where_it_occurs(tmp_path: Path) -> None:
    fetched = _sent(0, 0, PointKind.THROTTLED_FETCH, 700, quota_type="fetch")
    root = _tables(tmp_path, ALICE_SENT, fetched)
    _, plain, _ = _whatif(root, "--add", "user=alice,producer_byte_rate=200000")
    assert LEGEND_OF_UNKNOWN not in plain and LEGEND_OF_NO_BUCKET not in plain
    _, unknown, _ = _whatif(root, "--add", "user=alice,consumer_byte_rate=200000")
    assert _lines(unknown, "user alice") == [
        ["before", "150 kB/s", "700 ms", "1", "1 s", "0 B"],
        ["open", "200 kB/s", "?", "0 ?1", "?", "0 B", "0 B"],
        ["closed", "200 kB/s", "0 ms", "0", "0 s", "0 B", "0 B"],
    ]
    assert LEGEND_OF_UNKNOWN in unknown and LEGEND_OF_NO_BUCKET not in unknown
    _, moved, _ = _whatif(root, "--add", "user=alice,client-id=etl,producer_byte_rate=200000")
    assert LEGEND_OF_NO_BUCKET in moved and LEGEND_OF_UNKNOWN not in moved
