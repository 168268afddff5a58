"""The ways through the code of the architecture page: files that exist, their number, and that each calls another."""

from __future__ import annotations

import re

import pytest

from tests.support.places import ROOT

_PAGE = (ROOT / "kquota_spark/docs/architecture.md").read_text(encoding="utf-8")
_ROWS = re.findall(r"^\| (.+) \| (\d+) \| (\[.+) \|$", _PAGE, re.MULTILINE)


def _imports(name: str) -> set[str]:
    """The modules of ours that a file imports, each as a path without its end."""
    text = (ROOT / f"kquota_spark/{name}.py").read_text(encoding="utf-8")
    found: set[str] = set()
    for module, names in re.findall(r"^ *from kquota_spark\.([\w.]+) import (.+)$", text, re.MULTILINE):
        found |= {module, *(f"{module}.{part}" for part in re.findall(r"\w+", names))}
    return {module.replace(".", "/") for module in found}


def test_there_are_six() -> None:
    assert len(_ROWS) == 6


@pytest.mark.parametrize(("number", "files"), [row[1:] for row in _ROWS], ids=[row[0] for row in _ROWS])
def test_each_file_imports_another_one_of_its_way_or_is_imported(number: str, files: str) -> None:
    names = re.findall(r"\[([\w/]+)\]", files)
    assert len(names) == len(set(names)) == int(number)
    imports = {name: _imports(name) & set(names) for name in names}
    imported = set().union(*imports.values())
    assert [name for name in names if not imports[name] and name not in imported] == []
