"""What an installation of a checkout or an image fetches has a version and a SHA-256 that a review has seen."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from tests.support.places import CONF, ROOT

LOCKS = (ROOT / "requirements.lock", CONF / "helm" / "commands.lock", CONF / "helm" / "spark.lock")
RECIPES = (ROOT / "Makefile", CONF / "helm" / "Dockerfile", CONF / "kubernetes" / "Dockerfile")
_PINNED = re.compile(r"([a-z0-9.-]+)==[^ ]+( ; [^\\]+)?(( --hash=sha256:[0-9a-f]{64})+)")


def entries(text: str) -> list[str]:
    """One line for each package of a lock file: its version, and all its hashes."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [" ".join(entry.split()) for entry in "\n".join(lines).replace("\\\n", " ").splitlines()]


def unhashed(text: str) -> list[str]:
    return [entry for entry in entries(text) if not _PINNED.fullmatch(entry)]


def names(text: str) -> set[str]:
    return {entry.partition("==")[0] for entry in entries(text)}


def test_a_line_without_a_hash_is_found() -> None:
    digest = f"    --hash=sha256:{'0' * 64}"
    good = f"# pinned\nsix==1.17.0 \\\n{digest} \\\n{digest}\npytz==2026.6 ; os_name == 'nt' \\\n{digest}\n"
    assert unhashed(good) == []
    assert unhashed(f"{good}zipp==4.1.2\n") == ["zipp==4.1.2"]
    assert unhashed(f"{good}zipp>=4 \\\n{digest}\n") == [f"zipp>=4 --hash=sha256:{'0' * 64}"]
    assert unhashed(f"{good}--index-url https://example.net\n") == ["--index-url https://example.net"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_package_is_pinned_with_its_hashes(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert unhashed(text) == []
    assert "://" not in text, "which index it comes from is the reader's to say"


def test_the_lock_has_every_declared_dependency() -> None:
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, extras = whole["project"], whole["project"]["optional-dependencies"]
    of_checkout, of_commands, of_spark = (names(lock.read_text(encoding="utf-8")) for lock in LOCKS)
    assert {*map(name, project["dependencies"])} - of_commands == set()
    assert {*map(name, [*project["dependencies"], *extras["spark"], "setuptools"])} - of_spark == set()
    every = [*project["dependencies"], *whole["build-system"]["requires"], *chain(*extras.values())]
    assert {*map(name, every)} - of_checkout == set()


@pytest.mark.parametrize("lock", LOCKS[1:], ids=lambda path: path.name)
def test_images_have_the_packages_that_the_tests_ran_with(lock: Path) -> None:
    tested = set(entries(LOCKS[0].read_text(encoding="utf-8")))
    assert set(entries(lock.read_text(encoding="utf-8"))) - tested == set()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.parent.name)
def test_every_pip_of_a_recipe_requires_hashes(recipe: Path) -> None:
    """Only the package itself has none; and no build of an archive fetches what is not in the lock."""
    text = re.sub(r"^\s*#.*\n", "", recipe.read_text(encoding="utf-8"), flags=re.MULTILINE).replace(
        "\\\n", " "
    )
    pips = re.findall(r"(?:pip|\(PIP\)) (?:install|download)([^&|;\n]*)", text)
    assert pips
    loose = [
        pip.strip()
        for pip in pips
        if "--require-hashes" not in pip and not re.search(r"--no-deps .*(-e \.|\.whl)", pip)
    ]
    assert loose == []
    isolated = [
        pip.strip() for pip in pips if not re.search(r"--no-build-isolation|--only-binary :all:|\.whl", pip)
    ]
    assert isolated == []


def name(requirement: str) -> str:
    """The name of a distribution as the package index compares it."""
    return re.split(r"[\[<>=!~ ;]", requirement, maxsplit=1)[0].lower().replace("_", "-")
