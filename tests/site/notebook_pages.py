"""The notebooks as pages of the site: run on the tables of `kquota try`, with their outputs and pictures."""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from tests.support.places import ROOT
from tests.support.programs.executed_notebooks import NOTEBOOKS, run

CHARTS = "assets/plotly.min.js"
"""The program that draws the figures, as a file of the site."""
_KEPT = Path(".kquota") / "site-notebooks.json"
_LOG = ROOT / "kquota_spark" / "samples" / "broker-1.kafka-request.log.gz"
_FIGURE = "application/vnd.plotly.v1+json"
_STYLE = re.compile(r"<style.*?</style>", re.DOTALL)
_NOTE = """\
!!! note
    This is `notebooks/{name}`, run when the site was built. The tables are those of `kquota try`. The settings name
    the log of that broker in `ship.files`.
"""


def notebook_pages() -> dict[str, str]:
    """The pages as Markdown by their names; run again only if a notebook, the package or its sample changed."""
    digest, kept = _digest(), ROOT / _KEPT
    if kept.is_file():
        found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        if found["digest"] == digest:
            pages: dict[str, str] = found["pages"]
            return pages
    made = _run_all()
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps({"digest": digest, "pages": made}), encoding="utf-8")
    return made


def page_name(notebook: Path) -> str:
    """The page of a notebook in the site."""
    return f"notebooks/{notebook.stem}.md"


def charts_script() -> str:
    """The text of `CHARTS`, from the installed package."""
    place = resources.files("plotly") / "package_data" / "plotly.min.js"
    return place.read_text(encoding="utf-8")


def _digest() -> str:
    files = [*NOTEBOOKS, _LOG, Path(__file__), *sorted((ROOT / "kquota_spark").rglob("*.py"))]
    found = hashlib.sha256()
    for file in files:
        found.update(file.read_bytes())
    return found.hexdigest()


def _run_all() -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="notebooks") as name:
        folder = Path(name)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(
            [sys.executable, "-m", "kquota_spark.cli.main", "try", "--folder", "try"],
            cwd=folder, env=environment, check=True, capture_output=True,
        )  # fmt: skip
        config = folder / "try" / "kquota.yaml"
        # The notebooks run in the folder: a relative path keeps its name out of the pages.
        settings = config.read_text(encoding="utf-8").replace(f"{folder}/", "")
        config.write_text(f"{settings}ship: {{files: [{json.dumps(f'1={_LOG}')}]}}\n", encoding="utf-8")
        return {page_name(path): _page(path.name, run(path, config, folder)) for path in NOTEBOOKS}


def _page(name: str, notebook: Any) -> str:
    title, *cells = notebook.cells
    parts = [title["source"], _NOTE.format(name=name)]
    for cell in cells:
        source = cell["source"]
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [part for output in cell.get("outputs", ()) for part in _shown(output)]
    scripts = (f'<script src="../{name}"></script>' for name in (CHARTS, "assets/figures.js"))
    return "\n\n".join([*parts, *scripts, ""])


def _shown(output: Any) -> Iterator[str]:
    """An output as Markdown: a figure, a table, or text."""
    data = output.get("data", {})
    if _FIGURE in data:
        drawn = data[_FIGURE]
        # The page has its own colours, for a light and a dark theme.
        layout = {key: value for key, value in drawn["layout"].items() if key != "template"}
        figure = json.dumps({"data": drawn["data"], "layout": layout}, separators=(",", ":"))
        yield f'<div class="figure" data-figure="{html.escape(figure)}"></div>'
    elif "text/html" in data:
        table = _STYLE.sub("", "".join(data["text/html"])).replace("\n", "")
        yield f'<div class="frame" tabindex="0" role="region" aria-label="Rows">{table}</div>'
    else:
        text = "".join(output.get("text") or data.get("text/plain", "")).rstrip()
        if text:
            yield f"````text\n{text}\n````"
