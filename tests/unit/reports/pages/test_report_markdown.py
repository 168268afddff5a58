"""Claims about the Markdown page: names stay texts, tables stay tables. markdown-it reads it back."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.reports.pages.page_markdown import escaped, markdown_page
from tests.support.reports.drawn_report import HOSTILE, empty_report, full_report, large_report, tenant_report

PAGE = markdown_page(full_report())
READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
MARKS = {
    "link_open",
    "image",
    "html_inline",
    "html_block",
    "code_inline",
    "em_open",
    "s_open",
    "heading_open",
}


def text_of(inline: Token) -> str:
    return "".join(child.content for child in inline.children or [])


def cells(page: str) -> list[list[list[str]]]:
    """Tables, rows, texts of cells."""
    tables: list[list[list[str]]] = []
    for token, after in pairwise(READER.parse(page)):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type in {"td_open", "th_open"}:
            tables[-1][-1].append(text_of(after))
    return tables


ODD = (
    *HOSTILE,
    "- item",
    "1. item",
    "=== x",
    "+ x",
    "http://x.y",
    "www.x.y",
    "a_b __c__ d__",
    "# head",
    "> said",
)


@pytest.mark.parametrize("text", [text for text in ODD if text], ids=range(len(ODD) - 1))
@pytest.mark.parametrize("before", ["", "x "])
def test_a_name_comes_back_as_it_was_and_marks_nothing(text: str, before: str) -> None:
    tokens = READER.parse(escaped(before + text))
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    assert not {child.type for child in tokens[1].children or []} & MARKS
    assert text_of(tokens[1]) == terminal_text(before + text).strip()


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_a_name_stays_in_its_cell(text: str) -> None:
    (table,) = cells(f"| a | b |\n| --- | --- |\n| {escaped(text)} | 1 |\n| 2 | 3 |\n")
    assert table == [["a", "b"], [terminal_text(text).strip(), "1"], ["2", "3"]]


def test_every_row_of_every_table_has_the_cells_of_its_head() -> None:
    tables = cells(PAGE)
    # Throttled, the worst, lengths, heat, lines, two of talkers, spread, by broker, cluster limits, changes, findings,
    # right sizes, capacity, agreement, calibration, error budgets.
    assert [len(table[0]) for table in tables] == [10, 4, 6, 6, 7, 8, 8, 5, 4, 7, 9, 5, 8, 6, 5, 4, 11]
    assert all(len(row) == len(table[0]) for table in tables for row in table)


def test_tables_hold_the_names_and_the_words_beside_colours() -> None:
    throttled = cells(PAGE)[0]
    assert [row[0] for row in throttled[1:4]] == ["user bob", "carol / dash", f"mallory / {HOSTILE[0]}"]
    assert throttled[1][6] == "141.5 % (▲)"


def test_headings_are_ours_alone() -> None:
    tokens = READER.parse(PAGE)
    headings = [text_of(after) for token, after in pairwise(tokens) if token.type == "heading_open"]
    assert headings[:2] == ["Kafka quota report: cluster payments", "1. Who was throttled?"]
    assert not [text for text in headings if "pwned" in text or "mallory" in text]


def test_a_command_is_in_a_fence_that_no_name_ends() -> None:
    fences = [token for token in READER.parse(PAGE) if token.type == "fence"]
    # bob's and one for each hostile name; the last recommendation has none.
    assert len(fences) == 1 + len(HOSTILE)
    assert fences[0].content == "kquota quotas set --user bob --producer-byte-rate 1500000 --dry-run\n"
    assert all(token.info == "sh" and token.content.count("\n") == 1 for token in fences)


def test_a_fence_is_longer_than_the_backticks_inside() -> None:
    one = replace(full_report().recommendations[0], command="kquota tree --user '````x```'")
    page = markdown_page(replace(full_report(), recommendations=(one,)))
    assert "\n`````sh\nkquota tree --user '````x```'\n`````\n" in page


def test_a_table_of_a_ticket_ends_after_25_rows_and_says_so() -> None:
    page = markdown_page(large_report())
    assert "and 175 more of Buckets that were throttled" in page
    assert "and 9,800 more buckets" in page
    assert max(len(table) for table in cells(page)) == 1 + 25


def test_an_empty_report_has_sentences_and_no_table() -> None:
    page = markdown_page(empty_report())
    assert "Nobody was throttled: no request of this period waited for a quota." in page
    assert cells(page) == []


def test_a_tenant_is_told_what_changed_and_what_to_ask_for_but_not_by_whom_or_how() -> None:
    page = markdown_page(tenant_report())
    # The last tables are the agreement and the error budget.
    assert cells(page)[-3] == [
        [
            "time (UTC)",
            "entity",
            "quota",
            "before",
            "after",
            "total delay per minute before",
            "after it",
            "what",
        ],
        ["2026-11-20 15:00:00", "user bob", "producer_byte_rate", "1.0 MB/s", "2.0 MB/s", "-", "-", "edit"],
    ]
    assert "What your clients can do, then what to ask for where quotas are set." in page
    assert "kquota quotas" not in page
