"""What the package imports, its installation brings: no package that is only there by way of another one."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from tests.support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_every_imported_package_is_a_declared_dependency() -> None:
    extras = PROJECT["optional-dependencies"]
    declared = {*map(_name, [*PROJECT["dependencies"], *extras["spark"], *extras["serve"], *extras["msk"]])}
    distributions = packages_distributions()
    undeclared = {
        package
        for package in _imported() - {*sys.stdlib_module_names, "kquota_spark"}
        if not declared & {_name(name) for name in distributions.get(package, [package])}
    }
    # PySpark's bridge to the JVM, and what the signer of tokens raises: their versions are those libraries' to choose.
    assert undeclared == {"py4j", "botocore"}


def _imported() -> set[str]:
    found = set()
    for path in (ROOT / "kquota_spark").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found


def _name(requirement: str) -> str:
    """The name of a distribution as the package index compares it."""
    return re.split(r"[\[<>=!~ ;]", requirement, maxsplit=1)[0].lower().replace("_", "-")
