"""The site of the documentation: it builds without a warning, a broken link fails, and it works without a network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from kquota_spark.cli.command_groups import GROUPS
from kquota_spark.config.settings import Settings
from kquota_spark.schema.tables import TABLES
from tests.site.references import references
from tests.support.places import ROOT
from tests.support.programs.chromium import chromium

DOCS = ROOT / "kquota_spark" / "docs"
SEARCH_S = 30.0


def build(folder: Path, docs: Path = DOCS) -> subprocess.CompletedProcess[str]:
    """Build the pages of a folder with the settings of the checkout."""
    own = {
        "INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": str(docs), "site_dir": str(folder / "site"),
        "theme": {"custom_dir": str(ROOT / "tests" / "site" / "theme")},
        "hooks": [str(ROOT / "tests" / "site" / "hooks.py")],
    }  # fmt: skip
    config = folder / "mkdocs.yml"
    config.write_text(yaml.safe_dump(own), encoding="utf-8")
    return subprocess.run(
        # Not quiet: MkDocs counts only the warnings that it prints.
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder / "site"


def test_every_page_of_the_package_is_a_page_of_the_site(site: Path) -> None:
    assert [
        page.stem for page in sorted(DOCS.glob("*.md")) if not (site / f"{page.stem}.html").is_file()
    ] == []
    assert {"index.html", "CONTRIBUTING.html", "SECURITY.html", "CHANGELOG.html"} <= {
        page.name for page in site.glob("*.html")
    }


def test_a_link_that_is_called_as_its_file_gets_the_title_of_its_page(site: Path) -> None:
    page = (site / "verdicts.html").read_text(encoding="utf-8")
    assert '<a href="accuracy.html">Accuracy</a>' in page and ">accuracy.md<" not in page


def test_every_kind_of_broken_link_fails_the_build(tmp_path: Path) -> None:
    docs = shutil.copytree(DOCS, tmp_path / "docs")
    with (docs / "model.md").open("a", encoding="utf-8") as page:
        page.write("\n[x](nowhere.md), [x](verdicts.md#no-heading), [x](../../conf/no-file.yaml)\n")
    done = build(tmp_path, docs)
    assert done.returncode == 1
    broken = re.findall(r"Doc file 'model.md' contains a link '([^']*)'", done.stderr)
    assert sorted(broken) == ["files/conf/no-file.yaml.md", "nowhere.md", "verdicts.md#no-heading"]


def test_the_references_have_every_command_setting_and_column() -> None:
    made = references()
    commands = "".join(text for name, text in made.items() if "/commands-" in name)
    names = [command.name for group in GROUPS.values() for command in group]
    assert [name for name in names if f"\n## kquota {name}" not in commands] == []
    of_kafka = [
        f"| `kafka.{name}` |" for name in ("bootstrap_servers", "topic", "options", "envelope_fields.broker")
    ]
    assert [row for row in of_kafka if row not in made["reference/settings.md"]] == []
    assert (
        f"| `stream.trigger` | `{Settings().stream.trigger // 1_000} s` | how often"
        in made["reference/settings.md"]
    )
    columns = [f"| `{column.name}` | `{column.type}` |" for table in TABLES for column in table.columns]
    assert len(columns) > 150 and [row for row in columns if row not in made["reference/tables.md"]] == []


def test_no_setting_of_the_reference_lacks_its_meaning() -> None:
    rows = [line for line in references()["reference/settings.md"].splitlines() if line.startswith("| `")]
    clear_by_name = ("client_id", "password", "user", "options", "apply_lag")
    bare = [row.split("`")[1] for row in rows if row.endswith("|  |")]
    assert [key for key in bare if not key.endswith(clear_by_name) and "retention" not in key] == []


def test_the_site_asks_for_nothing_from_the_net_and_finds_what_is_searched(
    site: Path, tmp_path: Path
) -> None:
    with chromium(tmp_path) as browser:
        browser.resize(1280, 900)
        browser.load(site / "reference" / "settings.html")
        browser.value("document.querySelector('[data-md-component=search-query]').focus()")
        # One entry at a time, because the field asks for the index when it gets the focus.
        typed = """(() => {
            const field = document.querySelector('[data-md-component=search-query]');
            field.value = 'kill switch';
            field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));
            field.dispatchEvent(new InputEvent('input', {bubbles: true}));
            return [...document.querySelectorAll('.md-search-result__link')].map(link => link.href);
        })()"""
        found: list[str] = []
        deadline = time.monotonic() + SEARCH_S
        while not found and time.monotonic() < deadline:
            found = browser.value(typed)
            time.sleep(0.1)
        assert any("enforcing.html" in address for address in found), browser.complaints()
        assert [
            address for address in browser.requests() if not address.startswith(("file:", "data:", "about:"))
        ] == []
        assert browser.complaints() == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_is_wider_than_a_telephone(site: Path, tmp_path: Path, theme: str) -> None:
    with chromium(tmp_path) as browser:
        browser.resize(420, 900)
        browser.media(theme)
        for page in ("index.html", "reading.html", "faults.html", "reference/commands-answers.html"):
            browser.load(site / page)
            assert browser.value("document.documentElement.scrollWidth") == 420, page
            scheme = browser.value("document.body.getAttribute('data-md-color-scheme')")
            assert scheme == {"light": "default", "dark": "slate"}[theme]
