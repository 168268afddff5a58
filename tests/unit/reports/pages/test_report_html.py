"""Claims about the HTML page: it holds the report, its own scripts and nobody else's, and has a size."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest

from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.reports.pages.page_html import embedded_json, html_page
from kquota_spark.reports.parts.words import entity_of
from kquota_spark.reports.sections import AuditReport
from tests.support.reports.drawn_report import (
    HOSTILE,
    empty_report,
    full_report,
    large_report,
    name,
    tenant_report,
    without_quotas,
)

EVENTS = re.compile(r"on[a-z]+$")
TAGS_OF_OTHERS = {"img", "iframe", "object", "embed", "form", "base", "video", "audio"}


class Parsed(HTMLParser):
    """Tags, texts of scripts and styles, headings, and all that a reader sees."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": [], "h2": [], "td": [], "option": []}
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in self.inside:
            self._open.append(tag)
            self.inside[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self.inside[self._open[-1]][-1] += data
        self.texts.append(data)

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for found, attributes in self.tags if found == tag]

    def block(self, anchor: str) -> str:
        """The text of a script by its id."""
        index = [attributes.get("id") for attributes in self.attributes("script")].index(anchor)
        return self.inside["script"][index]


@pytest.fixture(scope="module")
def page() -> str:
    return html_page(full_report())


@pytest.fixture(scope="module")
def parsed(page: str) -> Parsed:
    return Parsed(page)


def policy(parsed: Parsed) -> dict[str, list[str]]:
    content = next(
        one["content"] for one in parsed.attributes("meta") if "content" in one and one.get("http-equiv")
    )
    assert content is not None
    rules = [rule.split() for rule in content.split("; ")]
    return {rule[0]: rule[1:] for rule in rules}


def sha(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def titles(report: AuditReport) -> list[str]:
    """Headings of sections, which begin with their number."""
    return [text.lstrip("0123456789") for text in Parsed(html_page(report)).inside["h2"]]


def test_sections_stand_in_the_order_of_the_questions() -> None:
    assert titles(full_report()) == [
        "Who was throttled?",
        "Who is near the limit?",
        "Who used how much?",
        "What changed?",
        "What is unprotected?",
        "What to do",
        "Which limits do not fit?",
        "How much request time do brokers have?",
        "May I trust this page?",
        "How much error budget is left?",
        "Definitions",
    ]


def test_a_first_look_begins_with_usage_and_where_to_begin() -> None:
    assert titles(without_quotas())[:2] == ["Who used how much?", "Where to begin"]


def test_a_tenant_is_spoken_to_and_learns_nothing_of_findings_and_threads() -> None:
    assert titles(tenant_report()) == [
        "How long were you throttled?",
        "How near are you to your limits?",
        "How much did you use?",
        "What changed for you?",
        "What can you do?",
        "May I trust this page?",
        "How much of your error budget is left?",
        "Definitions",
    ]
    assert "You were throttled in 1 bucket: 61.5 s of delay in all." in html_page(tenant_report())


def test_every_empty_section_says_what_its_emptiness_means() -> None:
    page = html_page(empty_report())
    for sentence in (
        "Nobody was throttled: no request of this period waited for a quota.",
        "There is nothing to compare: no traffic met a limit in this period.",
        "Clients sent nothing in this period that counts towards a quota.",
        "Nothing: no quota was edited and none enforced.",
        "Nothing was found: all traffic is metered by a rule, and every rule meters what it names.",
        "Nothing is recommended from what this period shows.",
    ):
        assert sentence in page
    assert "<table>" not in page
    # No section without a figure: request time of brokers was not measured.
    assert "How much request time" not in page


def test_no_tag_and_no_attribute_comes_from_a_name(parsed: Parsed) -> None:
    assert {tag for tag, _ in parsed.tags}.isdisjoint(TAGS_OF_OTHERS)
    names = {name for _, attributes in parsed.tags for name in attributes}
    assert not [name for name in names if EVENTS.match(name)]
    cards = {f"#{one['id']}" for one in parsed.attributes("li") if "id" in one}
    sections = {f"#{one['id']}" for one in parsed.attributes("section")}
    # This report has no table of all buckets, so no name leads to a row of it.
    assert {one["href"] for one in parsed.attributes("a")} <= sections | cards
    # The data, plotly.js packed, and our own script; each ends where we ended it.
    assert [one.get("type") for one in parsed.attributes("script")] == [
        "application/json",
        "text/plain",
        None,
    ]


@pytest.mark.parametrize("text", [text for text in HOSTILE if text], ids=range(len(HOSTILE) - 1))
def test_a_name_is_on_the_page_as_it_is_with_what_cannot_be_seen_as_escapes(
    parsed: Parsed, text: str
) -> None:
    assert f"mallory / {terminal_text(text)}" in parsed.inside["td"]
    assert (
        f"mallory / {terminal_text(text)}"
        in json.loads(parsed.block("data"))["chart-throttled"]["data"]["labels"]
    )


def test_the_policy_lets_run_what_we_wrote_and_nothing_else(parsed: Parsed) -> None:
    rules = policy(parsed)
    packed = base64.b64decode(parsed.block("plotly"))
    plotly = gzip.decompress(packed).decode()
    assert plotly == (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(
        encoding="utf-8"
    )
    assert rules["default-src"] == ["'none'"]
    assert rules["script-src"] == [sha(parsed.inside["script"][2]), sha(plotly)]
    assert rules["style-src-elem"] == [sha(parsed.inside["style"][0]), sha("")]
    assert rules["img-src"] == ["data:"]


def test_nothing_on_the_page_leads_to_a_network(page: str, parsed: Parsed) -> None:
    addresses = [
        value
        for _, attributes in parsed.tags
        for name, value in attributes.items()
        if name in {"src", "href", "action", "data", "poster", "srcset"} and value is not None
    ]
    assert [value for value in addresses if not value.startswith("#")] == ["data:,"]
    assert not re.search(r"@import|url\(", parsed.inside["style"][0])


def test_data_cannot_end_its_block() -> None:
    text = embedded_json({"name": "</script><!--\u2028\u2029&]]>"})
    assert text == (
        '{"name":"\\u003c/script\\u003e\\u003c!--\\u2028\\u2029\\u0026]]\\u003e"}'
    )  # fmt: skip
    assert json.loads(text) == {"name": "</script><!--\u2028\u2029&]]>"}


def test_numbers_that_json_lacks_are_refused_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        embedded_json({"percent": float("nan")})


def test_the_heat_map_breaks_at_80_and_100(parsed: Parsed) -> None:
    data: dict[str, Any] = json.loads(parsed.block("data"))["chart-heat-produce"]["data"]
    pairs = {
        (percent, band)
        for percents, bands in zip(data["percent"], data["bands"], strict=True)
        for percent, band in zip(percents, bands, strict=True)
        if percent is not None
    }
    assert {80.0, 91.0, 99.0, 100.5} <= {percent for percent, _ in pairs}
    # One slot has no certain second: it has a colour of its own and no part in the others.
    assert [(percent, band) for percent, band in pairs if band == 5] == [(35.27, 5)]
    for percent, band in pairs - {(35.27, 5)}:
        assert (band >= 2) == (percent >= 80), percent
        assert (band >= 3) == (percent > 100), percent


def test_every_chart_has_its_table_and_says_in_words_what_it_shows(page: str, parsed: Parsed) -> None:
    charts = json.loads(parsed.block("data"))
    figures = [one for one in parsed.attributes("div") if one.get("class") == "chart"]
    assert [one["id"] for one in figures] == list(charts)
    assert all(one["role"] == "img" and one["aria-label"] for one in figures)
    assert page.count("<table>") == page.count("<details")
    after = [part.partition("</figure>")[2].lstrip()[:8] for part in page.split("<figure>")[1:]]
    assert after == ["<details"] * len(charts)


def test_a_command_with_characters_that_cannot_be_seen_is_not_for_copying(page: str) -> None:
    shown = page.partition("\\u202egnp.exe&#39; --request")[2][:400]
    assert "<button" not in shown.partition("<li>")[0]
    assert "the command is not for copying" in shown


def test_10_000_clients_make_a_page_of_bounded_size() -> None:
    page = html_page(large_report())
    # Of 10,000 buckets 200 are in the table, of 1,000 recommendations 50 on the page. plotly.js alone is 2.0 MB.
    assert "and 9,800 more buckets" in page
    assert "The largest are shown; 950 more are left out." in page
    assert len(page) < 3_000_000


def test_the_same_report_makes_the_same_bytes() -> None:
    assert html_page(full_report()) == html_page(full_report())


def test_one_bucket_of_two_types_is_told_apart_in_the_chart() -> None:
    report = full_report()
    twice = (report.throttled[0], replace(report.throttled[0], bucket=name("bob", "", "fetch")))
    data = json.loads(Parsed(html_page(replace(report, throttled=twice))).block("data"))["chart-throttled"][
        "data"
    ]
    assert data["labels"] == ["user bob, produce", "user bob, fetch"]


@pytest.mark.parametrize(
    ("canonical", "words"),
    [
        ("users/Zo%C3%AB", "user Zoë"),
        ("users/alice/clients/<default>", "user alice, default of client ids"),
        ("users/<default>", "default of users"),
        ("ips/10.0.0.1", "ip 10.0.0.1"),
        ("ips/<default>", "default of ips"),
        ("brokers/1", "brokers/1"),
    ],
)
def test_an_entity_is_told_in_words(canonical: str, words: str) -> None:
    assert entity_of(canonical) == words
