"""What keys do to the view of `kquota top`: every one moves, asks or shows as its help says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kquota_spark.cli.top.feed import Answer, BucketView, Question
from kquota_spark.cli.top.keys import Room, after_key
from kquota_spark.cli.top.page import View
from kquota_spark.reports.scope.broker_buckets import BucketKey
from kquota_spark.reports.timeline.top_buckets import SortBy, TopBuckets

KEY = BucketKey("demo", 2, "produce", "u3", "", "")


def listed(count: int = 50, **changed: object) -> View:
    rows = [
        {"cluster_id": "demo", "broker_id": 2, "quota_type": "produce", "bucket_user": f"u{number}",
         "bucket_client_id": "", "bucket_tags": None}
        for number in range(count)
    ]  # fmt: skip
    answer = Answer(Question(), 0, TopBuckets(rows, count))
    view = View(cluster_id="demo", interval_ms=1_000, stale_after_ms=0, answer=answer)
    return replace(view, **changed)  # type: ignore[arg-type]


def pressed(view: View, *keys: str, room: Room = Room(20)) -> View:  # noqa: B008 - it is immutable
    for key in keys:
        after = after_key(view, key, key if len(key) == 1 else "", room)
        assert after is not None, key
        view = after
    return view


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        (["j"], 11), (["down"], 11), (["k"], 9), (["up"], 9), (["g"], 0), (["home"], 0), (["G"], 49), (["end"], 49),
        (["pagedown"], 30), (["pageup"], 0), (["G", "j"], 49), (["g", "k"], 0), (["G", "pageup", "k"], 28),
    ],
)  # fmt: skip
def test_keys_that_move_stay_within_the_rows(keys: list[str], chosen: int) -> None:
    assert pressed(listed(chosen=10), *keys).chosen == chosen


def test_the_same_keys_scroll_a_page_to_its_end_and_no_further() -> None:
    view = listed(is_help=True)
    room = Room(page=20, most_scroll=12)
    assert [pressed(view, *keys, room=room).scroll for keys in ("j", "jjk", "G", "Gj", "Gg")] == [
        1,
        1,
        12,
        12,
        0,
    ]
    # A terminal that has grown shows more: a scroll beyond its end counts as its end.
    assert pressed(replace(view, scroll=30), "k", room=room).scroll == 11


def test_enter_e_and_v_look_at_the_chosen_bucket_and_at_one_another() -> None:
    view = listed(chosen=3)
    for key, bucket_view in (
        ("enter", BucketView.CHART),
        ("e", BucketView.EXPLAIN),
        ("v", BucketView.VIOLATIONS),
    ):
        details = pressed(view, key)
        assert (details.question.selected, details.question.bucket_view) == (KEY, bucket_view)
        assert pressed(replace(details, scroll=9), "v").question.bucket_view is BucketView.VIOLATIONS
        assert pressed(replace(details, scroll=9), "v").scroll == 0
        assert pressed(details, "escape").question.selected is None
    assert pressed(listed(count=0), "enter").question.selected is None


def test_a_filter_is_typed_kept_and_cleared() -> None:
    typing = pressed(listed(chosen=9), "/", "j", "q", "x", "backspace")
    assert typing.typed == "jq", "letters are text and no commands"
    kept = pressed(typing, "enter")
    assert (kept.question.text, kept.typed, kept.chosen) == ("jq", None, 0)
    assert pressed(kept, "/").typed == "jq", "it can be edited"
    assert pressed(kept, "escape").question.text == ""
    assert pressed(kept, "/", "z", "escape").question.text == ""


def test_rows_are_those_of_worst_brokers_until_all_brokers_are_asked_for() -> None:
    assert Question().is_per_broker is False
    assert pressed(listed(chosen=7), "B").question.is_per_broker is True
    assert pressed(listed(chosen=7), "B").chosen == 0
    assert pressed(listed(), "B", "B").question.is_per_broker is False


def test_letters_sort_reverse_and_choose_a_type() -> None:
    assert pressed(listed(), "t").question.sort is SortBy.DELAY
    assert pressed(listed(), "t", "R").question.is_reversed is True
    assert pressed(listed(), "t", "R", "u").question.is_reversed is False
    assert pressed(listed(), "T").question.type == "produce"


def test_help_opens_anywhere_and_closes_to_where_it_was() -> None:
    details = pressed(listed(chosen=3), "enter")
    for close in ("?", "escape", "enter"):
        assert pressed(details, "?", close) == details
    assert pressed(details, "?").is_help is True


def test_q_quits_except_in_a_filter() -> None:
    assert after_key(listed(), "q", "q", Room(20)) is None
    assert after_key(pressed(listed(), "?"), "q", "q", Room(20)) is None
    assert pressed(listed(), "/", "q").typed == "q"
