"""The screen of `kquota top` as lines: it fits every width, and its three words say what they count."""

from __future__ import annotations

from typing import Any

import pytest

from kquota_spark.cli.top.details import harm_text
from kquota_spark.cli.top.feed import Answer, BucketView, Details, Question
from kquota_spark.cli.top.lines import Line
from kquota_spark.cli.top.page import HELP, KEYS, View, most_scroll, screen
from kquota_spark.formats.text.escape import width
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.timeline.top_buckets import TopBuckets, time_throttled_s

KEY = BucketKey("demo", 2, "produce", "alice", "etl", "")


def row(**changed: Any) -> dict[str, Any]:
    return {
        "cluster_id": "demo", "broker_id": 2, "brokers": 3, "quota_type": "produce", "bucket_user": "alice",
        "bucket_client_id": "etl", "bucket_tags": None, "level": 1, "rule": "users/alice/clients/etl",
        "limit_per_s": 1e6, "rate_per_s": 1.5e6, "mean_rate_per_s": 1.4e6, "quota_used_percent": 150.0,
        "peak_quota_used_percent": 160.0, "delay_ms": 11_200, "throttled_requests": 14, "time_throttled_s": 7,
        "requests": 20, "clients": 1, "last_second": 59_000, "is_certain": True, "source": "log",
        "users": ["alice"], "client_ids": ["etl"], "used_percents": [150.0] * 60, **changed,
    }  # fmt: skip


def view(*rows: dict[str, Any], details: Details | None = None, **asked: Any) -> View:
    question = Question(selected=None if details is None else KEY, **asked)
    answer = Answer(question, 59_000, TopBuckets(list(rows), len(rows), 1, 1), details)
    return View("demo", 5_000, 30_000, question, answer)


def texts(lines: list[Line]) -> list[str]:
    return ["".join(piece.text for piece in line.pieces).rstrip() for line in lines]


def shown(of: View, columns: int = 100, rows: int = 24) -> list[str]:
    return texts(screen(of, 60_000, columns, rows))


@pytest.mark.parametrize("columns", [60, 79, 80, 81, 100, 120, 160, 200])
@pytest.mark.parametrize("is_per_broker", [False, True])
def test_every_line_fits_and_the_bucket_and_its_use_are_always_there(
    columns: int, is_per_broker: bool
) -> None:
    rows = [row(), row(broker_id=1, brokers=1, quota_used_percent=20.0), row(bucket_user="u" * 90, brokers=1)]
    lines = shown(view(*rows, is_per_broker=is_per_broker), columns)
    assert len(lines) == 24
    assert max(map(width, lines)) <= columns
    assert "alice / etl" in lines[3] and "150.0 %" in lines[3] and "used▼" in lines[2]
    assert lines[-1].startswith("urtnb:sort") and lines[-1].endswith("q:quit")


def test_a_worst_broker_says_of_how_many_and_two_rows_of_a_bucket_name_theirs_at_any_width() -> None:
    assert shown(view(row()))[3].startswith("2 of 3  produce  alice / etl")
    narrow = shown(view(row(brokers=1), row(brokers=1, broker_id=1), is_per_broker=True), 60)
    assert narrow[1].startswith("2 rows per broker; 1 at 80 % or more, 1 over the limit")
    assert [line.split()[0] for line in narrow[2:5]] == ["broker", "2", "1"]


def test_a_wide_screen_has_all_three_words() -> None:
    title, cells = shown(view(row()), 200)[2:4]
    for words, cell in (
        ("total delay", "11.2 s"),
        ("time throttled", "7 s"),
        ("throttled requests", "14 of 20"),
    ):
        end = title.index(words) + len(words)
        assert cells[:end].endswith(cell), words


def test_the_help_fits_sixty_columns_and_scrolls_to_its_end() -> None:
    assert max(map(len, HELP)) <= 60
    for key, _, _ in KEYS:
        named = " ".join(key) if key == "urtnb" else key
        assert any(line.startswith(named) for line in HELP), key
    of = View("demo", 5_000, 30_000, is_help=True)
    last = most_scroll(of, 60, 24)
    assert last == len(HELP) - 21  # 24 lines without the two above and the one below
    assert shown(of, 60)[-1] == f"Esc:back j/k:{last} below q:quit"
    scrolled = View("demo", 5_000, 30_000, is_help=True, scroll=last)
    assert shown(scrolled, 60)[22] == HELP[-1]
    assert shown(of, 60, 80)[-1] == "Esc:back q:quit"


def test_a_second_counts_as_throttled_when_a_throttle_began_or_still_ran() -> None:
    def second(age_s: int, longest_ms: int | None, *, is_throttled: bool = True) -> dict[str, Any]:
        return {"age_s": age_s, "longest_ms": longest_ms, "is_throttled": is_throttled}

    assert time_throttled_s([second(5, 0)], 10) == 1  # a throttle below 1 ms
    assert time_throttled_s([second(5, 2_001)], 10) == 3  # ages 5, 4, 3
    assert time_throttled_s([second(5, 2_000), second(4, 1_000)], 10) == 2  # ages 5 and 4, once each
    assert time_throttled_s([second(12, 5_000)], 10) == 2  # ages 12 to 8: 9 and 8 are of the last ten
    assert time_throttled_s([second(2, 20 * 60_000)], 10) == 3  # it ends in the future
    assert time_throttled_s([second(2, 900, is_throttled=False)], 10) == 0


def near_second(age_s: int, **changed: Any) -> dict[str, Any]:
    return {
        "second": 59_000 - 1_000 * age_s, "rule": "users/alice/clients/etl", "limit_per_s": 1e6, "rate_per_s": 1.5e6,
        "quota_used_percent": 150.0, "requests": 5, "throttle_ms": 800, "observed_throttle_ms": 900,
        "is_certain": True, "source": "log", "delay_ms": 1_600, "delayed_requests": 2, "is_throttled": True,
        "longest_ms": 900, **changed,
    }  # fmt: skip


def test_the_harm_of_a_minute_in_three_words() -> None:
    quiet = near_second(1, delay_ms=0, delayed_requests=0, is_throttled=False, longest_ms=0)
    # 2 x 1.6 s; 2 x 2 of 3 x 5 requests; the seconds of ages 0 and 2.
    assert harm_text([near_second(0), quiet, near_second(2)], 59_000) == (
        "last 60 s: total delay 3.20 s, throttled requests 4 of 15, time throttled 2 s"
    )
    assert harm_text([near_second(0, source="jmx", requests=None)], 59_000).endswith(
        "no request was logged in 60 s"
    )


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_a_bucket_from_near_fits(columns: int) -> None:
    episode = {
        "start_time": 10_000, "end_time": None, "limit_per_s": 1e6, "peak_rate_per_s": 1.6e6,
        "peak_quota_used_percent": 160.0, "delay_ms": 11_200, "delayed_requests": 1_234,
    }  # fmt: skip
    client = {"user": "alice", "client_id": "c" * 99, "mean_rate_per_s": 1e6, "amount": 9, "requests": 3,
              "delay_ms": 40}  # fmt: skip
    chart = Details(BucketView.CHART, 59_000, None, [client], [near_second(age_s) for age_s in range(60)])
    lines = shown(view(details=chart), columns, 80)
    assert max(map(width, lines)) <= columns
    assert lines[2] == "alice / etl, produce, broker 2, rule u/alice/c/etl"
    assert any(line.split()[:1] == ["alice"] for line in lines)
    violations = shown(view(details=Details(BucketView.VIOLATIONS, 59_000, episodes=[episode])), columns)
    assert max(map(width, violations)) <= columns
    # Long titles take two lines where there is no room for them.
    [title] = [line for line in violations if line.split()[:2] == ["start", "lasted"]]
    assert "delay" in title
    [row] = [line for line in violations if line.split()[:2] == ["00:00:10", "open"]]
    assert "11.2 s" in row and "1,234" in row
