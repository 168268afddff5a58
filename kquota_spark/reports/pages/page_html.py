"""The report as one HTML file that opens from a disk without a network, and runs no scripts but its own.

The Content-Security-Policy lists every script and style sheet by its hash. plotly.js, which is nearly all of the file,
is gzipped, and the browser unpacks it (2 MB instead of 5). Charts are drawn from JSON in a data block. Tables are in
the page itself, so it can be read without scripts, and in a browser without `DecompressionStream`.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
from importlib import resources
from typing import TYPE_CHECKING, Any

from kquota_spark.formats.text.escape import cut, terminal_text
from kquota_spark.reports.pages.page import page_of
from kquota_spark.reports.parts.page_parts import Page
from kquota_spark.reports.parts.words import bucket_href
from kquota_spark.reports.sections import AuditReport
from kquota_spark.reports.sections.buckets import bucket_index

if TYPE_CHECKING:
    from jinja2 import Template

_FOR_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def html_page(report: AuditReport) -> str:
    """The whole HTML file."""
    return policed_page(report)[1]


def policed_page(report: AuditReport) -> tuple[str, str]:
    """The Content-Security-Policy of the file, and the file."""
    from markupsafe import Markup

    page = page_of(report)
    style, script = html_part("report.css"), html_part("report.js") + html_part("tables.js")
    packed, of_plotly = _plotly() if _charts(page) else ("", "")
    policy = _policy(scripts=[_hash(script), of_plotly], styles=[_hash(style), _hash("")])
    return policy, html_template("page.html.j2").render(
        page=page,
        base="",
        # Only buckets of the table can be followed: a tenant's shared ones, and those of no limit, are not in it.
        linked={bucket_href(one.bucket) for one in report.buckets},
        policy=Markup(policy),  # noqa: S704 - hashes
        style=Markup(style),  # noqa: S704 - a file of ours
        script=Markup(script),  # noqa: S704 - a file of ours
        data=Markup(embedded_json(_charts(page))),  # noqa: S704 - escaped there
        plotly=Markup(packed),  # noqa: S704 - base64
        buckets=Markup(_packed(embedded_json(_shown(bucket_index(report))))) if report.buckets else "",  # noqa: S704
    )


def embedded_json(value: Any) -> str:
    """JSON for a data block: in ASCII, without a character that could end the block or begin a tag."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_FOR_HTML)


def _charts(page: Page) -> dict[str, Any]:
    charts = [block.chart for section in page.sections for block in section.blocks if block.chart is not None]
    return {chart.anchor: {"kind": chart.kind, "data": _shown(chart.data)} for chart in charts}


def _shown(value: Any) -> Any:
    """The texts of a chart with invisible characters as escapes, as everywhere on the page."""
    if isinstance(value, str):
        return terminal_text(value)
    if isinstance(value, dict):
        return {name: _shown(part) for name, part in value.items()}
    return [_shown(part) for part in value] if isinstance(value, list | tuple) else value


def _policy(scripts: list[str], styles: list[str]) -> str:
    """The policy: nothing is loaded. plotly.js sets style attributes and an empty sheet; heat maps are data: images."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(filter(None, scripts))}",
            f"style-src-elem {' '.join(styles)}",
            "style-src-attr 'unsafe-inline'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@functools.cache
def html_part(name: str) -> str:
    """The text of a file in the folder `html`."""
    return (resources.files("kquota_spark.reports") / "html" / name).read_text(encoding="utf-8")


@functools.cache
def _plotly() -> tuple[str, str]:
    """plotly.js of the installed package, gzipped in base64, and the hash of its text."""
    text = (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    return _packed(text), _hash(text)


def _packed(text: str) -> str:
    """Gzipped, in base64: letters, digits, `+`, `/` and `=`, none of which ends a block."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@functools.cache
def html_template(name: str) -> Template:
    """A template that shows every text as text, invisible characters as escapes."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    def visible(value: Any) -> Any:
        return terminal_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=FunctionLoader(html_part), autoescape=True, undefined=StrictUndefined, finalize=visible,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["brief"] = lambda text, columns: cut(terminal_text(text), columns)
    # A number and its unit stay on one line.
    environment.filters["together"] = lambda text: terminal_text(text).replace(" %", "\N{NO-BREAK SPACE}%")
    environment.filters["is_plain"] = lambda text: terminal_text(text) == text
    return environment.get_template(name)
