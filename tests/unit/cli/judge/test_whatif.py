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
LEGEND_OF_UNKNOWN = "?, ?n: of n throttled fetches the throttle under another limit is not known"
LEGEND_OF_NO_BUCKET = "-: no value, the quotas do not make this bucket"


def _sent(
    at_s: int, amount: int, kind: PointKind = PointKind.PRODUCE, throttle_ms: int = 0, **changed: Any
) -> Row:
    """A second of usage with one request at its beginning."""
    time_ms = T0_MS + 1_000 * at_s
    point = Point(time_ms, time_ms + 1, 1, at_s, amount, throttle_ms, int(kind))
    return usage(at_s, amount=amount, points=[point._asdict()], **changed)


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


def _cells(out: str, bucket: str) -> list[str]:
    [line] = [line for line in out.splitlines() if f"  {bucket}  " in line]
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


ALICE_SENT = _sent(0, 1_800_000)
BOB_SENT = _sent(0, 1_800_000, user="bob")


def test_the_delay_before_is_the_brokers_and_that_of_the_replay_is_beside_it_in_json(tmp_path: Path) -> None:
    root = _tables(tmp_path, ALICE_SENT)
    words = ("--add", "user=alice,producer_byte_rate=200000")
    code, out, err = _whatif(root, *words)
    assert (code, err) == (0, "")
    # 1,800,000 B in 10 s are 180,000 B/s: 2 s above 150,000, and none above 200,000.
    assert _cells(out, "user alice") == [
        "produce", "user alice", "150 kB/s -> 200 kB/s", "1 -> 0", "1 s -> 0 s", "2.10 s -> 0 ms",
    ]  # fmt: skip
    assert "total delay 2.10 s -> 0 ms" in _unfolded(out)
    [row] = json.loads(_whatif(root, *words, "--output", "json")[1])["rows"]
    assert (row["delay_by_replay_ms"], row["delay_ms"], row["delay_by_replay_after_ms"]) == (
        2_000, 2_100, 0,
    )  # fmt: skip
    assert (row["fits_percent"], row["is_lower"]) == (None, False)


def test_time_throttled_counts_the_seconds_in_which_a_throttle_still_ran(tmp_path: Path) -> None:
    # Six seconds: the request of second 5 is the last one.
    root = _tables(tmp_path, ALICE_SENT, _sent(5, 0))
    words = ("--add", "user=alice,producer_byte_rate=140000")
    [row] = json.loads(_whatif(root, *words, "--output", "json")[1])["rows"]
    # By brokers 2.1 s from second 0 on. By replay 2 s from 0 on, and from second 5 on until the end.
    assert (row["time_throttled_s"], row["time_throttled_by_replay_s"]) == (3, 2 + 1)
    # 1,800,000 / 140,000 - 10 s = 2.857 s are 3 s of the clock.
    assert row["time_throttled_by_replay_after_s"] == 3 + 1


def test_without_the_brokers_figure_the_delay_before_is_that_of_the_replay(tmp_path: Path) -> None:
    root = _tables(tmp_path, ALICE_SENT, BOB_SENT)
    _, out, _ = _whatif(root, "--add", "user=bob,producer_byte_rate=200000")
    assert _cells(out, "user bob")[-1] == "2.00 s -> 0 ms"
    # Alice's bucket does not change and keeps the brokers' figure: 2.1 + 2.0 s before, 2.1 s after.
    assert "total delay 4.10 s -> 2.10 s" in _unfolded(out)


def test_under_a_lower_limit_it_prints_what_still_fits_and_no_open_sum(tmp_path: Path) -> None:
    words = ("--add", "user=alice,producer_byte_rate=120000")
    root = _tables(tmp_path / "a", ALICE_SENT)
    code, out, _ = _whatif(root, *words)
    # One window of 10 s under 120,000 B/s holds 1,200,000 B of the 1,800,000: 66.7 %.
    assert _cells(out, "user alice")[-3:] == ["1 s", "2.10 s -> more", "66.7 %"]
    assert (
        code == 0
        and "total delay 2.10 s -> more" in _unfolded(out)
        and "fits: percent of the " in _unfolded(out)
    )
    [row] = json.loads(_whatif(root, *words, "--output", "json")[1])["rows"]
    # (180,000 - 120,000) / 120,000 x 10 s
    assert (row["delay_by_replay_after_ms"], row["is_lower"]) == (5_000, True)
    assert row["fits_percent"] == 100 * 1_200_000 / 1_800_000
    # By a request five seconds later, 600,000 B more have passed: all fits.
    root = _tables(tmp_path / "b", ALICE_SENT, _sent(5, 0))
    [row] = json.loads(_whatif(root, *words, "--output", "json")[1])["rows"]
    assert row["fits_percent"] == 100.0


def test_a_lower_limit_that_throttles_nothing_is_no_open_sum(tmp_path: Path) -> None:
    root = _tables(tmp_path, _sent(0, 1_000))
    _, out, _ = _whatif(root, "--add", "user=alice,producer_byte_rate=120000")
    assert _cells(out, "user alice")[-1] == "2.10 s -> 0 ms"
    assert "fits" not in out


def test_buckets_that_do_not_change_are_counted_and_shown_on_demand(tmp_path: Path) -> None:
    root = _tables(tmp_path, ALICE_SENT, BOB_SENT)
    words = ("--add", "user=alice,producer_byte_rate=200000")
    _, out, _ = _whatif(root, *words)
    assert "user bob" not in out
    assert "1 of 2 buckets change, 1 unchanged (--limit 0 shows them); 2 requests from " in _unfolded(out)
    _, out, _ = _whatif(root, *words, "--limit", "0")
    assert _cells(out, "user bob") == ["produce", "user bob", "150 kB/s", "1", "1 s", "2.00 s"]
    rows = json.loads(_whatif(root, *words, "--output", "json")[1])["rows"]
    assert [(row["bucket_user"], row["is_changed"]) for row in rows] == [("alice", True), ("bob", False)]


def test_where_nothing_changes_it_says_so(tmp_path: Path) -> None:
    root = _tables(tmp_path, ALICE_SENT)
    code, out, _ = _whatif(root, "--add", "user=alice,producer_byte_rate=150000")
    assert (code, out.startswith("nothing changes in 1 bucket; 1 request")) == (0, True)


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
    assert _cells(unknown, "user alice")[-3:] == ["1 -> 0 ?1", "1 s -> ?", "700 ms -> ?"]
    assert LEGEND_OF_UNKNOWN in unknown and LEGEND_OF_NO_BUCKET not in unknown
    _, moved, _ = _whatif(root, "--add", "user=alice,client-id=etl,producer_byte_rate=200000")
    assert LEGEND_OF_NO_BUCKET in moved and LEGEND_OF_UNKNOWN not in moved
