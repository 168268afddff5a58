"""README and pages are in plain English: short sentences, one term per thing, and no program that talks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.site.prose import lines_of_text, paragraphs, sentences, words_of
from tests.support.places import ROOT

PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "kquota_spark" / "docs").glob("*.md")),
)
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
MOST_WORDS, MEAN_WORDS, MOST_README_LINES = 35, 16.0, 120

REFUSED = {
    "a program that talks or thinks": r"(?:tells|says|knows)\b|looks? (?:at|for|whenever|once|again)\b",
    "tell, where report, show or distinguish is meant": r"(?:tell|told|telling)\b",
    "make good, where recompute is meant": r"(?:make|makes|made|making) (?:\w+ ){0,3}good\b",
    "stretch, where period is meant": r"stretch(?:es)?\b",
    "held back or hurt, where throttled is meant": r"(?:held back|holds? \w+ back|hurts?)\b",
    "time in throttle, where time throttled is meant": r"(?:time in throttle|throttled ms)\b",
    "ours or the model's, where by replay is meant": r"(?:the model's (?:figure|verdict|throttle)|throttle ours)\b",
    "go on, where continue or resume is meant": r"(?:go|goes|going|went|gone) on\b",
    "wrong usage, where usage error is meant": r"wrong usage\b",
    "holes, where data gaps is meant": r"holes?\b",
    "shaken or noisy rings, where perturbed is meant": r"(?:shaken|noisy) rings?\b",
    "was tried": r"(?:was|were) (?:\w+ )?tried\b",
    "stands there": r"stands? (?:there|below|beside it|above|in the (?:way|table|log))\b",
    "of before": r"of before\b",
    "from when on, through when": r"(?:from when on|through when|from where on|from until)\b",
    "all the same": r"all the same\b",
    "for want of": r"for want of\b",
    "a, where per is meant": (
        r"\d[\d,.]* ?(?:(?:\w+/?){1,2} ){0,2}a (?:second|minute|hour|day|week|month|year|request|line|broker)\b"
        r"|(?:once|twice|times|bytes|lines|requests|rows|files|partitions|messages) a (?:second|minute|hour|day|year)\b"
    ),
    "milliseconds where seconds are meant": r"(?:\d{1,3},\d{3}|\d{4,}) ms\b",
}


@EACH_PAGE
def test_no_sentence_of_a_page_has_more_than_35_words(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [sentence for sentence in sentences(text) if words_of(sentence) > MOST_WORDS] == []


@EACH_PAGE
def test_the_sentences_of_a_page_have_16_words_on_average_at_most(page: Path) -> None:
    found = [words_of(sentence) for sentence in sentences(page.read_text(encoding="utf-8"))]
    assert sum(found) / len(found) <= MEAN_WORDS


@EACH_PAGE
def test_a_page_has_no_phrase_that_readers_stumble_over(page: Path) -> None:
    lines = [*lines_of_text(page.read_text(encoding="utf-8"))]
    found = [
        (reason, line)
        for reason, phrase in REFUSED.items()
        for line in lines
        if re.search(rf"\b(?:{phrase})", line.lower())
    ]
    assert found == []


@EACH_PAGE
def test_a_paragraph_has_one_semicolon_at_most(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [paragraph for paragraph in paragraphs(text) if paragraph.count(";") > 1] == []


@EACH_PAGE
def test_a_sentence_names_who_acts(page: Path) -> None:
    bare = re.compile(r"(?:Who|What) (?!.*\?$)")
    assert [text for text in sentences(page.read_text(encoding="utf-8")) if bare.match(text)] == []


@EACH_PAGE
def test_a_page_opens_with_whom_it_is_for(page: Path) -> None:
    title, *rest = page.read_text(encoding="utf-8").split("\n")
    assert title.startswith("# ")
    if page.parent != ROOT:
        lead = " ".join("\n".join(rest).strip().split("\n\n")[0].split())
        assert re.match(r"For [a-z ,]+", lead), lead


def test_the_readme_has_120_lines_at_most() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_README_LINES


def test_a_heading_of_the_changelog_has_six_words_at_most() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    headings = [line for line in lines if line.startswith("#")]
    assert headings and [line for line in headings if len(line.lstrip("# ").split()) > 6] == []


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("One two. Three four five!\n", [2, 3]),
        ("* One two\n* Three\n", [2, 1]),
        ("```text\nnot counted. At all.\n```\nCounted once.\n", [2]),
        ("| a table | is not |\n\n# Nor a heading\n\n![picture](x.png)\n", []),
        ("Run `kquota replay LOG --quotas FILE` on [your log](x.md).\n", [5]),
    ],
)
def test_words_are_counted_in_prose_alone(text: str, counted: list[int]) -> None:
    assert [words_of(sentence) for sentence in sentences(text)] == counted


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("a program that talks or thinks", "the doctor says what to do"),
        ("a, where per is meant", "5 mb a second"),
        ("a, where per is meant", "once a day"),
        ("stands there", "more of it stands there"),
        ("make good, where recompute is meant", "makes late lines good"),
        ("milliseconds where seconds are meant", "throttled for 2029 ms"),
    ],
)
def test_phrases_of_the_old_text_are_found(reason: str, sentence: str) -> None:
    assert re.search(REFUSED[reason], sentence)
