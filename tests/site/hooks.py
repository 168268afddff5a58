"""What MkDocs asks for: pages that are not files of `docs_dir`, and links to files of the checkout."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from tests.site.notebook_pages import CHARTS, charts_script, notebook_pages, page_name
from tests.site.references import references

ROOT = Path(__file__).parents[2]
DOCS = "kquota_spark/docs"
PAGES_OF_ROOT = {
    "README.md": "index.md",
    **{name: name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")},
}
"""Pages at the root of the checkout, and what they are called in the site."""
_LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?(?=\))")
_NAMED = re.compile(r"\[([\w-]+)\.md\]\(([^)#\s]+\.md)(#[^)\s]*)?\)")
"""A link that is called as its file: the right name in a checkout and on the terminal, but not here."""
_FENCE = re.compile(r"^ *```")
_LANGUAGES = {
    ".py": "python", ".yaml": "yaml", ".yml": "yaml", ".conf": "ini", ".xml": "xml", ".json": "json",
    ".properties": "properties", ".service": "ini", ".timer": "ini", ".lock": "text",
}  # fmt: skip


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the references, the notebooks, the pages of the root, and every file of the checkout that a page leads to.

    A link to a file that is not there stays without a page: MkDocs names both, and a strict build fails.
    """
    made = references()
    for file, site in PAGES_OF_ROOT.items():
        made[site] = (ROOT / file).read_text(encoding="utf-8")
    linked = set()
    sources = [(page.src_uri, page.content_string) for page in files.documentation_pages()]
    for name, text in [*sources, *made.items()]:
        linked |= {
            path for path in _targets(text, _place(name)) if not _shown_as(path) and (ROOT / path).exists()
        }
    for path in sorted(linked):
        made[f"files/{path}.md"] = _page_of(path)
    # Their links are not looked for: cells are code.
    made |= notebook_pages()
    made[CHARTS] = charts_script()
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """The page with its links as the site has them."""
    here = page.file.src_uri
    if here.startswith(("files/", "notebooks/")):
        return markdown
    place = _place(here)
    titles = {path: title for title, path in _entries(config.nav)}

    def linked(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(place, match[1]))
        target = _shown_as(path) or f"files/{path}.md"
        return posixpath.relpath(target, posixpath.dirname(here) or ".") + (match[2] or "")

    def named(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[2]))
        return f"[{titles.get(target, match[1])}]({match[2]}{match[3] or ''})"

    lines, is_code = [], False
    for line in markdown.split("\n"):
        is_code ^= _FENCE.match(line) is not None
        lines.append(line if is_code else _NAMED.sub(named, _LINK.sub(linked, line)))
    return "\n".join(lines)


def _entries(nav: Any) -> Iterator[tuple[str, str]]:
    """Titles and pages of the navigation, of all its levels."""
    for entry in nav:
        for title, inside in entry.items():
            yield from [(title, inside)] if isinstance(inside, str) else _entries(inside)


def _place(name: str) -> str:
    """The folder of the checkout that the links of a page start from."""
    if name in PAGES_OF_ROOT.values():
        return ""
    return posixpath.join(DOCS, posixpath.dirname(name))


def _targets(text: str, place: str) -> Iterator[str]:
    is_code = False
    for line in text.split("\n"):
        is_code ^= _FENCE.match(line) is not None
        if not is_code:
            for match in _LINK.finditer(line):
                yield posixpath.normpath(posixpath.join(place, match[1]))


def _shown_as(path: str) -> str | None:
    """The page or picture of the site that shows a file of the checkout; None where it needs a page of its own."""
    if path in PAGES_OF_ROOT:
        return PAGES_OF_ROOT[path]
    if path.startswith("notebooks/"):
        return page_name(Path(path))
    return posixpath.relpath(path, DOCS) if path.startswith(f"{DOCS}/") else None


def _page_of(path: str) -> str:
    """A page with the text of a file, or with the list of the files of a folder; not part of the search."""
    found = ROOT / path
    head = f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n"
    if found.is_dir():
        names = sorted(file.name for file in found.iterdir() if file.name != "__pycache__")
        return head + "\n".join(f"* `{name}`" for name in names) + "\n"
    fence = "````"
    text = found.read_text(encoding="utf-8")
    return f"{head}{fence}{_LANGUAGES.get(found.suffix, 'text')}\n{text}{fence}\n"
