"""Claims about what comes out: harmless, aligned, and for programs exact."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
import yaml

from kquota_spark.cli.text.render import (
    Colour,
    Report,
    Shown,
    csv_report,
    json_report,
    table_report,
    yaml_report,
)
from kquota_spark.formats.text.escape import csv_text, cut, cut_inside, json_text, terminal_text, width
from kquota_spark.formats.text.person_units import (
    iso_time,
    person_bytes,
    person_count,
    person_ms,
    person_pair_ms,
    person_percent,
    person_rate,
    person_span,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("alice", "alice"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("two\nlines\r\tand tab", "two\\x0alines\\x0d\\x09and tab"),
        ("\u202etxt.exe", "\\u202etxt.exe"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u2028b", "a\\u2028b"),
        ("\U000e0041", "\\U000e0041"),
        ("\x7f", "\\x7f"),
        ("\ud800", "\\ud800"),
        ("Zoë 日本 naïve", "Zoë 日本 naïve"),
    ],
)
def test_a_terminal_gets_no_character_that_it_acts_on(text: str, shown: str) -> None:
    assert terminal_text(text) == shown


@pytest.mark.parametrize(
    ("text", "cell"),
    [("=cmd()", "'=cmd()"), ("+1", "'+1"), ("-1", "'-1"), ("@x", "'@x"), ("\tx", "'\tx"), ("\rx", "'\rx"),
     ("\n=1+1", "'\n=1+1"), ("\uff1d1+1", "'\uff1d1+1"), ("\uff0b1", "'\uff0b1"), ("\uff0d1", "'\uff0d1"),
     ("\uff20a", "'\uff20a"), ("a=b", "a=b"), ("", "")],
)  # fmt: skip
def test_a_spreadsheet_gets_no_formula(text: str, cell: str) -> None:
    assert csv_text(text) == cell


def test_json_is_readable_exact_and_free_of_controls() -> None:
    value = {"id": "Zoë\x1b\x9b\x7f\u202e\U000e0041日"}
    text = json_text(value)
    assert text == '{"id": "Zoë\\u001b\\u009b\\u007f\\u202e\\udb40\\udc41日"}'
    assert json.loads(text) == value


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("\u0915\u093f", 1), ("", 0)]
)
def test_width_is_what_a_terminal_uses(text: str, columns: int) -> None:
    assert width(text) == columns


@pytest.mark.parametrize(
    ("text", "columns", "left"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "abcd…"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("e" + "\u0301" * 1_000, 5, "e" + "\u0301" * 3),
    ],
)
def test_texts_are_cut_by_width_and_marks_do_not_pile_up(text: str, columns: int, left: str) -> None:
    assert cut(text, columns) == left


@pytest.mark.parametrize(
    ("text", "columns", "left"),
    [
        ("payments-sink-0", 15, "payments-sink-0"),
        ("payments-sink-0", 12, "payments…k-0"),
        ("日本語日本語", 8, "日本…語"),
        ("ab" * 9 + "e" + "\u0301", 6, "abab…e\u0301"),
        ("abc", 1, "…"),
        ("e" + "\u0301" * 1_000, 5, "e" + "\u0301" * 3),
    ],
)
def test_of_a_long_name_the_end_is_shown_too(text: str, columns: int, left: str) -> None:
    assert cut_inside(text, columns) == left


def _names(*, keep: int) -> Report:
    return replace(
        _report({"client": "payments-sink-0", "bytes": 7}),
        shown=(
            Shown("client", lambda row: row["client"], is_text=True, keep=keep),
            Shown("bytes", lambda row: str(row["bytes"])),
            Shown("rule", lambda _: "c/*", is_text=True, rank=2, note="rule: * the default"),
            Shown("sure", lambda _: "yes", rank=1),
        ),
    )


def test_columns_of_least_rank_are_left_out_before_a_name_is_cut_to_nothing() -> None:
    # 15 + 2 + 5 + 2 + 4 + 2 + 4 = 34 columns with all of it, 28 without the rule
    assert table_report(_names(keep=12), columns=34) == (
        "client           bytes  rule  sure\npayments-sink-0      7  c/*    yes\nthe end\nrule: * the default\n"
    )
    more = "(a wider\nterminal shows more,\n--output csv everything)\n"
    assert table_report(_names(keep=12), columns=25) == (
        f"client        bytes  sure\npayments…k-0      7   yes\nthe end\nnot shown: rule {more}"
    )
    assert table_report(_names(keep=12), columns=24) == (
        "client           bytes\npayments-sink-0      7\nthe end\n"
        "not shown: rule, sure (a\nwider terminal shows\nmore, --output csv\neverything)\n"
    )


def test_units_are_for_people() -> None:
    rates = [
        person_rate(rate)
        for rate in (None, 0.0, 999.4, 999.5, 1_234_567.0, 99_949_999.0, 123_456_789.0, 5e15)
    ]
    assert rates == ["none", "0 B/s", "999 B/s", "1.0 kB/s", "1.2 MB/s", "99.9 MB/s", "123 MB/s", "5000 TB/s"]
    assert person_bytes(1_048_576) == "1.0 MB"
    assert [person_ms(ms) for ms in (0, 999, 1_000, 2_029, 9_999, 12_345, 280_032, 600_000, 7_200_000)] == [
        "0 ms", "999 ms", "1.00 s", "2.03 s", "10.0 s", "12.3 s", "280 s", "10.0 min", "2.0 h",
    ]  # fmt: skip
    assert person_ms(4_443_750_000) == "1,230 h"  # 1,234.4 h in three digits
    spans = (1_000, 90_000, 600_000, 7_325_000, 86_400_000, 1_500)
    assert [person_span(ms) for ms in spans] == ["1 s", "90 s", "10 min", "2.0 h", "24 h", "1.50 s"]
    pairs = ((95, 96), (2_029, 280_032), (950, 2_029), (None, 5), (None, None))
    assert [person_pair_ms(*pair) for pair in pairs] == [
        "95 / 96 ms", "2.03 / 280 s", "950 ms / 2.03 s", "- / 5 ms", "- / -",
    ]  # fmt: skip
    assert (person_count(2_564), person_percent(25_000.0)) == ("2,564", "25,000 %")
    assert [person_percent(percent) for percent in (None, 99.96, 103.24, 512.3)] == [
        "-",
        "100.0 %",
        "103.2 %",
        "512 %",
    ]
    assert [iso_time(ms) for ms in (0, 1_795_239_600_007)] == [
        "1970-01-01T00:00:00Z",
        "2026-11-21T05:40:00.007Z",
    ]


def _report(*rows: dict[str, object], title: str = "client") -> Report:
    return Report(
        command="kquota test",
        columns=("client", "bytes", "time", "share"),
        rows=rows,
        shown=(
            Shown(title, lambda row: row["client"], is_text=True),
            Shown("bytes", lambda row: str(row["bytes"])),
        ),
        times=frozenset({"time"}),
        footer="the end",
        when_empty="no rows",
        colour=lambda row: Colour.RED if row["bytes"] == 7 else None,
    )


_ROWS: tuple[dict[str, object], ...] = (
    {"client": "=1+1\n\x1b[2J", "bytes": 7, "time": 1_795_239_600_000, "share": 0.5},
    {"client": "x" * 40, "bytes": 123_456_789, "time": None, "share": float("nan")},
)


def test_a_table_cuts_texts_and_never_numbers() -> None:
    assert table_report(_report(*_ROWS), columns=30) == (
        "client                   bytes\n"
        "=1+1\\x0a\\x1b[2J              7\n"
        "xxxxxxxxxxxx…xxxxxx  123456789\n"
        "the end\n"
    )


def test_colour_goes_around_the_row_only_where_asked_for() -> None:
    coloured = table_report(_report(_ROWS[0]), has_colour=True)
    assert coloured.splitlines()[1] == "\x1b[31m=1+1\\x0a\\x1b[2J      7\x1b[0m"
    assert "\x1b" not in table_report(_report(_ROWS[0]))


def test_json_is_an_envelope_with_raw_numbers() -> None:
    text = json_report(_report(*_ROWS))
    assert text == (
        '{"command": "kquota test", "version": 1, "rows": [\n'
        '{"client": "=1+1\\n\\u001b[2J", "bytes": 7, "time": "2026-11-21T05:40:00Z", "share": 0.5},\n'
        '{"client": "' + "x" * 40 + '", "bytes": 123456789, "time": null, "share": null}\n'
        "]}\n"
    )
    assert json.loads(text)["rows"][0]["client"] == "=1+1\n\x1b[2J"


def test_yaml_is_the_envelope_of_json_in_characters_that_no_terminal_acts_on() -> None:
    bidi_and_c1 = {"client": "a\u202eb\x9b2J: [no", "bytes": 7, "time": None, "share": float("nan")}
    report = _report(*_ROWS, bidi_and_c1)
    text = yaml_report(report)
    assert yaml.safe_load(text) == json.loads(json_report(report))
    assert text.isascii() and all(char.isprintable() or char == "\n" for char in text)
    assert text.startswith("command: kquota test\nversion: 1\nrows:\n- client: ")


def test_a_mapping_in_csv_is_json_as_a_list_is() -> None:
    row: dict[str, object] = {
        "client": {"user": "o'neil", "client_id": None},
        "bytes": ["a", None],
        "time": None,
        "share": True,
    }
    [_, *cells] = csv.reader(io.StringIO(csv_report(_report(row))))
    assert cells == [['{"user": "o\'neil", "client_id": null}', '["a", null]', "", "true"]]


def test_csv_defuses_formulas_and_on_a_terminal_controls_too() -> None:
    head = "client,bytes,time,share\n"
    assert csv_report(_report(_ROWS[0])) == head + '"\'=1+1\n\x1b[2J",7,2026-11-21T05:40:00Z,0.5\n'
    assert csv_report(_report(_ROWS[0]), is_for_terminal=True) == (
        head + "'=1+1\\x0a\\x1b[2J,7,2026-11-21T05:40:00Z,0.5\n"
    )


def test_nothing_found_is_said_in_a_table_and_is_no_row_elsewhere() -> None:
    assert table_report(_report()) == "no rows\n"
    assert json_report(_report()) == '{"command": "kquota test", "version": 1, "rows": []}\n'
    assert csv_report(_report()) == "client,bytes,time,share\n"
