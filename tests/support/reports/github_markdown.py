"""Markdown as GitHub shows it: tables of GFM, then mentions, addresses and references outside of code.

GitHub reads the Markdown first and turns mentions, numbers of issues and addresses in texts into links afterwards. It
leaves code alone.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

from markdown_it import MarkdownIt

_SPECIAL = re.compile(
    r"(?<![\w/])@[\w-]+|#\d+|\bGH-\d+|\b[0-9a-f]{7,40}\b|[\w.+-]+@[\w-]+\.[\w.]+|www\.\w|https?://|:[a-z+-]\w*:|\$\S"
)
"""Text that GitHub makes a link, a mention, a picture or a formula."""
_ALLOWED = {
    "h3", "h4", "p", "ul", "li", "strong", "table", "thead", "tbody", "tr", "th", "td", "code", "br", "sub", "wbr",
}  # fmt: skip
"""Elements of a comment of ours."""


class Shown(HTMLParser):
    """What a page shows: texts outside of code, texts of code, and every element."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.codes: list[str] = []
        self.elements: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.tables: list[list[int]] = []
        """Per table, the cells of each row."""
        self._in_code = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count an element."""
        self.elements.append((tag, attrs))
        if tag == "code":
            self._in_code += 1
            self.codes.append("")
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append(0)
        if tag in ("td", "th"):
            self.tables[-1][-1] += 1

    def handle_endtag(self, tag: str) -> None:
        """Leave code."""
        if tag == "code":
            self._in_code -= 1

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        if self._in_code:
            self.codes[-1] += data
        else:
            self.texts.append(data)

    def foreign(self) -> list[str]:
        """Elements and attributes that no comment of ours has, and texts that GitHub makes something else of."""
        found = [f"<{tag}>" for tag, _ in self.elements if tag not in _ALLOWED]
        found += [
            f"{tag} {name}" for tag, attrs in self.elements for name, value in attrs
            if (name, value) not in (("style", "text-align:right"), ("style", "text-align:left"))
        ]  # fmt: skip
        return found + [hit for text in self.texts for hit in _SPECIAL.findall(text)]


def html_of(markdown: str) -> str:
    """The HTML of a comment."""
    rendered: str = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(markdown)
    return rendered
