"""Runs the notebooks as Jupyter does, each in a kernel of its own, from top to bottom."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

from tests.support.places import ROOT

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
_CHART = "application/vnd.plotly.v1+json"
_MARKUP = re.compile(r"\x1b\[[0-9;]*m")


def executed(path: Path, config: Path, directory: Path, **environment: str) -> dict[str, str]:
    """By id of its cell, what each shows as text.

    Args:
        path: the notebook.
        config: the settings that it is to read.
        directory: where it runs.
        environment: further variables of its kernel.

    Raises:
        CellExecutionError: a cell fails.
    """
    notebook = run(path, config, directory, **environment)
    return {
        cell["id"]: "\n".join(map(_text, cell["outputs"]))
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def run(path: Path, config: Path, directory: Path, **environment: str) -> Any:
    """The notebook with the outputs of its cells.

    Args:
        path: the notebook.
        config: the settings that it is to read.
        directory: where it runs.
        environment: further variables of its kernel.

    Raises:
        CellExecutionError: a cell fails.
    """
    read: Any = nbformat.read  # which has no types
    notebook = read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="kernel") as sockets:
        # Sockets in files: of ports that are chosen first and bound later one may be taken meanwhile.
        by_files = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/socket"}})
        client: Any = NotebookClient(
            notebook, config=by_files, timeout=300, startup_timeout=300, kernel_name="python3",
            resources={"metadata": {"path": str(directory)}},
        )  # fmt: skip
        client.execute(env=_environment(KQUOTA_CONFIG=str(config), **environment))
    return notebook


def _environment(**more: str) -> dict[str, str]:
    # The package of this checkout, wherever the kernel runs.
    return {**os.environ, "PYTHONPATH": str(FOLDER.parent), **more}


def _text(output: Any) -> str:
    data = output.get("data", {})
    shown = data.get(_CHART) or data.get("text/html") or data.get("text/plain") or output.get("text", "")
    return _MARKUP.sub("", str(shown))
