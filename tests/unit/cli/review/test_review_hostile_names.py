"""Names of clients in a comment are only text: no link, mention, HTML or cell of their own, and of bounded length."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kquota_spark.model.quotas.entities import Entity
from kquota_spark.reports.review.code_spans import MOST_COLUMNS, code_span
from kquota_spark.reports.review.comment import MOST_BYTES
from tests.support.programs.command_output import run
from tests.support.reports.github_markdown import Shown, html_of
from tests.support.reports.reviewed_tables import PRODUCE, Quotas, quota_file, sent
from tests.support.tables.table_rows import write_table

NAMES = (
    "@octo/team", "[x](https://evil.example)", "![x](https://evil.example/p.png)", "<img src=x onerror=alert(1)>",
    "a|b|c", "`code`", "``", "\\`", "\\|", "a\\|b`c|", "</code><script>alert(1)</script>", "<!-- kquota -->", "-->",
    "#1", "GH-12", "octo/app#7", "1234567890abcdef1234567890abcdef12345678", "me@evil.example", "www.evil.example",
    "https://evil.example/?a=b", ":bomb:", "$x$", "**bold**", "~~gone~~", "&lt;b&gt;", "&#64;team", " leading", "a\tb",
    "line\nbreak", "\r", "\u202egnp.exe", "\x1b[31m", "# head", "- item", "1. one", "> quote", "---", "<details>",
    "[^1]", "[ ]", "a  b", "é" * 10, "\u0301" * 30, "\U0001f4a3", "=1+1", "{{ x }}", "${{ github.token }}", "x" * 5_000,
    "@" * 300, "|" * 300, "`" * 300,
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_in_a_cell_is_code_and_nothing_else(name: str) -> None:
    from kquota_spark.formats.text.escape import cut_inside, terminal_text

    shown = cut_inside(terminal_text(name), MOST_COLUMNS)
    page = Shown(html_of(f"| a | b |\n| --- | ---: |\n| user {code_span(shown)} | 1 |\n"))
    assert page.foreign() == []
    assert page.tables == [[2, 2]]
    # HTML shows rows of blanks as one.
    assert [" ".join(text.split()) for text in page.codes] == [" ".join(shown.split())]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Base, head and settings: each hostile name is a user and a client id with a lower limit."""
    root = tmp_path_factory.mktemp("hostile")
    base: Quotas = {Entity(name): {PRODUCE: 200_000.0} for name in NAMES}
    head: Quotas = {Entity(name): {PRODUCE: 100_000.0 + place} for place, name in enumerate(NAMES)}
    head |= {Entity(name, name): {PRODUCE: 90_000.0} for name in NAMES}
    rows = [{**sent(name, 1_500_000), "client_id": name} for name in NAMES]
    write_table(root / "tables", "usage", *rows)
    write_table(root / "tables", "decisions")
    settings = root / "kquota.yaml"
    settings.write_text(f"cluster_id: demo\ntables: {json.dumps(str(root / 'tables'))}\n", encoding="utf-8")
    return quota_file(root, "base.yaml", base), quota_file(root, "head.yaml", head), settings


def test_a_comment_about_hostile_names_has_only_elements_of_ours(hostile: tuple[Path, Path, Path]) -> None:
    base, head, settings = hostile
    words = ("--base", str(base), "--head", str(head), "--config", str(settings), "--budget-delay", "1m")
    code, out, err = run("review", *words)
    assert (code, err) == (3, "")
    page = Shown(html_of(out))
    assert page.foreign() == []
    assert len(out.encode()) <= MOST_BYTES
    assert max(map(len, page.codes)) <= MOST_COLUMNS + 30, "combining marks have no width"
    assert [{*cells} for cells in page.tables] == [{9}, {4}, {5}, {2}, {3}]


def test_the_json_has_the_names_as_they_are(hostile: tuple[Path, Path, Path]) -> None:
    base, head, settings = hostile
    words = ("--base", str(base), "--head", str(head), "--config", str(settings), "--output", "json")
    answer = json.loads(run("review", *words)[1])
    assert {client["user"] for one in answer["affected"] for client in one["clients"]} == {*NAMES}
