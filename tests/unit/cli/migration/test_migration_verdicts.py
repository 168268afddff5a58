"""`kquota migration` has the right exit code for each difference between two sides, with the delay of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kquota_spark.config.loader import load_settings
from kquota_spark.enforce.ports import Image
from kquota_spark.model.compare.tried_brokers import AS_RECORDED
from kquota_spark.model.quotas.entities import DEFAULT, AnyEntity, Entity, IpEntity
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey
from kquota_spark.reports.migration.checking import Sides, check
from kquota_spark.reports.review.comment import comment_of
from kquota_spark.reports.review.gathering import Asked
from kquota_spark.reports.review.review import Review
from kquota_spark.reports.review.wording import MIGRATION
from tests.support.programs.command_output import run
from tests.support.reports.reviewed_tables import BASE, PRODUCE, Quotas, quota_file, write_reviewed_tables
from tests.support.tables.table_rows import T0_MS, second, write_table

ALICE, BOB, DAVE, EVE, ZED = (Entity(name) for name in ("alice", "bob", "dave", "eve", "zed"))
SIDE: Quotas = {**BASE, Entity(DEFAULT): {PRODUCE: 400_000.0}}


class Difference(NamedTuple):
    """Edits of the side before, the exit code, the delay of the affected clients before and after (ms), the reasons."""

    name: str
    edits: dict[AnyEntity, dict[AnyKey, float] | None]
    code: int
    delay_ms: tuple[int, int] = (0, 0)
    reasons: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


MOVED = "1 client gets another limit or bucket"
WITHIN = "the total delay grows by at most 2.50 s in the recorded traffic, within the budget of 10.0 min"
DIFFERENCES = (
    Difference("nothing", {}, 0),
    Difference("a rule with the limit and the bucket of the default", {EVE: {PRODUCE: 400_000}}, 0),
    # bob's only rule of this type is the default's then, and his bucket stays (bob, "").
    Difference(
        "a higher limit", {BOB: None}, 2, (0, 0),
        (MOVED, "1 kind of clients without recorded traffic would get another limit or bucket"),
    ),
    # (100 - 80) / 80 x 10 s
    Difference(
        "a lower limit", {BOB: {PRODUCE: 80_000}}, 2, (0, 2_500),
        (WITHIN, MOVED, "1 kind of clients without recorded traffic would get another limit or bucket"),
    ),
    Difference(
        "a lower limit above a budget", {BOB: {PRODUCE: 80_000}}, 3, (0, 2_500),
        ("the total delay grows by at most 2.50 s in the recorded traffic, and the budget is 2.00 s", MOVED,
         "1 kind of clients without recorded traffic would get another limit or bucket"),
        ("--budget-delay", "2s"),
    ),
    # (180 - 150) / 150 x 10 s are 2 s on both sides: the pair has a bucket of its own.
    Difference(
        "another bucket with the same limit", {Entity("alice", "app"): {PRODUCE: 150_000}}, 2, (2_000, 2_000), (MOVED,)
    ),
    Difference(
        "a rule that only possible clients have", {ZED: {PRODUCE: 60_000}}, 2, (0, 0),
        ("1 kind of clients without recorded traffic would get another limit or bucket",),
    ),
    Difference(
        "a limit of connections", {IpEntity("10.0.0.1"): {IpQuotaKey.CONNECTION_CREATION_RATE: 5}}, 2, (0, 0),
        ("1 kind of clients without recorded traffic would get another limit or bucket",),
    ),
    # dave has the default's 400 kB/s before, and nothing after.
    Difference(
        "the end of the default", {Entity(DEFAULT): None}, 2, (0, 0),
        (MOVED, "1 kind of clients without recorded traffic would get another limit or bucket",
         "a limit ends, and clients are then unlimited"),
    ),
    Difference(
        "a mangled name", {Entity("CN=app"): None, Entity("CN%3Dapp"): {PRODUCE: 50_000}}, 3, (0, 0),
        ("1 rule has a mangled name, so the clients that were meant are not under them",
         "2 kinds of clients without recorded traffic would get another limit or bucket"),
    ),
    Difference(
        "thread time, which has no replay", {ALICE: {PRODUCE: 150_000, QuotaKey.REQUEST_PERCENTAGE: 50}}, 2, (0, 0),
        (MOVED, "1 kind of clients without recorded traffic would get another limit or bucket",
         "1 client could not be replayed"),
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reviewed_tables(tmp_path_factory.mktemp("checked"))


def checked(settings: Path, before: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of a check."""
    code, out, err = run("migration", "--before", str(before), "--config", str(settings), *words)
    assert err == ""
    return code, out.replace("\u00a0", " ")


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.name)
def test_each_difference_has_its_exit_code_and_its_reasons(
    settings: Path, tmp_path: Path, difference: Difference
) -> None:
    edited = {entity: values for entity, values in {**SIDE, **difference.edits}.items() if values is not None}
    before, after = quota_file(tmp_path, "before.yaml", SIDE), quota_file(tmp_path, "after.yaml", edited)
    code, out = checked(settings, before, "--after", str(after), "--output", "json", *difference.options)
    answer: dict[str, Any] = json.loads(out)
    delay_ms = tuple(
        sum(one[f"delay_ms_{when}"] or 0 for one in answer["affected"]) for when in ("before", "after")
    )
    reasons = tuple(reason["text"] for reason in answer["reasons"])
    assert (code, delay_ms, reasons) == (difference.code, difference.delay_ms, difference.reasons)
    assert answer["verdict"] == {0: "pass", 2: "person", 3: "stop"}[code]


def test_the_differences_have_every_verdict() -> None:
    codes = [difference.code for difference in DIFFERENCES]
    assert (codes.count(0), codes.count(2), codes.count(3)) == (2, 7, 2)


def test_a_pass_names_both_sides_and_the_traffic(settings: Path, tmp_path: Path) -> None:
    before, after = quota_file(tmp_path, "before.yaml", SIDE), quota_file(tmp_path, "after.yaml", SIDE)
    code, out = checked(settings, before, "--after", str(after))
    lines = out.splitlines()
    assert code == 0
    assert lines[:9] == [
        "### Migration check: pass",
        "",
        "| | before | after |",
        "| --- | --- | --- |",
        f"| quotas | `file {before}` | `file {after}` |",
        "| rules | 6 | 6 |",
        "| sample ring | `3.8+/11x1000ms` | `3.8+/11x1000ms` |",
        "",
        "**None of 4 clients with traffic gets another limit, bucket or verdict.**",
    ]
    assert "Recorded traffic of 2026-11-21T05:40:00Z to 2026-11-21T05:40:01Z." in lines[-1]


def test_the_ticket_shows_the_mangled_name_with_the_entity_that_was_meant(
    settings: Path, tmp_path: Path
) -> None:
    edited: Quotas = {entity: values for entity, values in SIDE.items() if entity != Entity("CN=app")}
    before = quota_file(tmp_path, "before.yaml", SIDE)
    after = quota_file(tmp_path, "after.yaml", {**edited, Entity("CN%3Dapp"): {PRODUCE: 50_000.0}})
    code, out = checked(settings, before, "--after", str(after))
    assert code == 3
    assert out.startswith("### Migration check: stop\n")
    assert (
        "| user `CN%3Dapp` | user `CN=app`: the name is still as ZooKeeper spells it (KAFKA-16222) |" in out
    )


def test_without_recorded_traffic_equal_sides_pass_and_others_need_a_person(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    settings = tmp_path / "kquota.yaml"
    settings.write_text(f"tables: {json.dumps(str(tmp_path / 'tables'))}\n", encoding="utf-8")
    before = quota_file(tmp_path, "before.yaml", SIDE)
    after = quota_file(tmp_path, "after.yaml", {**SIDE, BOB: {PRODUCE: 300_000.0}})
    code, out = checked(settings, before, "--after", str(before))
    assert (code, "**No rule differs, and there is no recorded traffic.**" in out) == (0, True)
    code, out = checked(settings, before, "--after", str(after))
    assert (code, "**1 rule changed, and no recorded traffic shows the effect.**" in out) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to compare: name --before and --after, or the brokers after, for example --to-version"),
        (("--after", "tables"), "--after: name --before too"),
        (("--before", "tables@noon", "--after", "tables"), "tables@noon: 'noon', expected a length of time"),
        (("--to-version", "new"), "--to-version: 'new', expected e.g. 3.9 or 3.7.2"),
        (("--to-window-num", "0"), "--to-window-num and --to-window-size-seconds: expected 1 or more"),
        (("--before", "-", "--after", "-"), "-: standard input is one side only; a file of this name is ./-"),
        (("--before", "nowhere", "--after", "tables"), "nowhere: no such file, and "),
    ],
)
def test_wrong_sides_are_one_line_on_standard_error(
    settings: Path, words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KQUOTA_CONTEXTS", str(tmp_path / "contexts.yaml"))
    code, out, err = run("migration", *words, "--config", str(settings))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"kquota: {message}")


def of_images(settings: Path, before: Image, after: Image) -> Review:
    loaded = load_settings(settings)
    return check(loaded, Sides(before, after, AS_RECORDED), Asked(None, 60_000, 600_000), 0)


def test_content_that_brokers_do_not_read_needs_a_person_and_is_in_the_ticket(settings: Path) -> None:
    problems = {"users/`x`|y": "the value of producer_byte_rate is no text"}
    found = of_images(
        settings, Image("ZooKeeper zk1:2181", SIDE, problems), Image("Kafka broker1:9092", SIDE)
    )
    assert [(one.text, one.is_harm) for one in found.reasons] == [
        ("1 place has content that brokers do not read as quotas", False)
    ]
    text = comment_of(found, 2, MIGRATION)
    cell = "users/&#96;x&#96;&#124;y:<wbr> the value of producer_byte_rate is no text"
    assert "#### Content that brokers do not read as quotas" in text
    assert (
        cell.replace(":<wbr>", "&#58;<wbr>").replace("/", "&#47;").replace("_", "&#95;").replace(" ", "&#32;")
        in text
    )


def test_quotas_that_are_known_only_up_to_some_time_ago_need_a_person(settings: Path) -> None:
    stale = Image("table quota_rules under x", SIDE, known_through_ms=T0_MS, is_stale=True)
    found = of_images(settings, Image("Kafka broker1:9092", SIDE), stale)
    assert [one.text for one in found.reasons] == [
        "table quota_rules under x has edits only through 2026-11-21T05:40:00Z"
    ]


def test_a_side_is_the_tables_at_a_time(tmp_path: Path) -> None:
    settings = write_reviewed_tables(tmp_path)
    rule = {"cluster_id": "demo", "level": 3, "entity": "users/bob", "source": "admin"}
    write_table(
        tmp_path / "tables", "quota_rules",
        rule | {"producer_byte_rate": 200_000.0, "valid_from": second(-60), "valid_to": second(0), "version": 1},
        rule | {"producer_byte_rate": 80_000.0, "valid_from": second(0), "version": 2},
    )  # fmt: skip
    side = quota_file(tmp_path, "side.yaml", {BOB: {PRODUCE: 200_000.0}})
    was, now = "tables@2026-11-21T05:39:30Z", "tables@2026-11-21T05:40:30Z"
    assert checked(settings, side, "--after", was)[0] == 0
    code, out = checked(settings, side, "--after", now, "--output", "json")
    # (100 - 80) / 80 x 10 s
    assert (code, json.loads(out)["affected"][0]["delay_ms_after"]) == (2, 2_500)
    assert json.loads(out)["after"]["quotas"].endswith("as of 2026-11-21T05:40:30Z")
