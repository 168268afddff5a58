"""What README, pages and example files say is true: commands parse, paths exist, queries run."""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from kquota_spark.cli.command_groups import all_commands
from kquota_spark.cli.jobs.audit import add_options
from kquota_spark.cli.main import parser
from kquota_spark.config.loader import load_settings
from kquota_spark.config.owners_file import load_owners
from kquota_spark.enforcement.policies import load_policies
from kquota_spark.formats.quota_files.quota_file import read_quota_file
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.schema.tables import TABLES
from tests.support.places import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = ROOT / "kquota_spark" / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(DOCS.glob("*.md")),
]
EVERYTHING = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
_BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(
    r"(?<![\w./-])(?:(?:conf|jobs|kquota_spark|notebooks|tests|\.ci)/[\w./*-]*[\w*]"
    r"|README\.md|CHANGELOG\.md|CONTRIBUTING\.md|SECURITY\.md|LICENSE|Makefile|pyproject\.toml|requirements\.lock)(?![\w/])"
)
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")
# On the machine of a broker or in a home directory, made by a run, or shown to be made by the reader.
_NAMES_OF_OTHERS = {"kquota_spark.zip"}
MOST_LINES = 430
"""Of a page: longer ones are not read to their end."""


def blocks(language: str) -> list[str]:
    return [text for name, text in _BLOCK.findall(EVERYTHING) if name == language]


def command_lines() -> Iterator[str]:
    """Every line of a shell block, continuation lines joined; what a console block shows after its prompt."""
    for text in blocks("sh"):
        yield from (line.strip() for line in text.replace("\\\n", " ").splitlines())
    for text in blocks("console"):
        yield from (line[2:] for line in text.splitlines() if line.startswith("$ "))


def kquota_lines() -> list[str]:
    return [line for line in command_lines() if line.startswith("kquota ")]


@pytest.mark.parametrize("line", kquota_lines())
def test_a_command_of_the_readme_parses(line: str) -> None:
    parser().parse_args(shlex.split(line, comments=True)[1:])


def test_the_readme_shows_every_reading_command() -> None:
    shown = {line.split()[1] for line in kquota_lines()}
    assert shown >= {"violations", "decisions", "usage", "doctor", "replay", "tables", "ship", "explain"}


def test_commands_in_running_text_exist_with_their_options() -> None:
    everything = parser()
    for text in re.findall(r"`kquota (\w[^`\n]*)`", EVERYTHING):
        found, known = everything, set[str]()
        for word in text.split():
            below = [action for action in found._actions if isinstance(action, argparse._SubParsersAction)]
            if below and not word.startswith("-"):
                names = word.split("|")  # `kquota enforce plan|show`
                assert set(names) <= set(below[0].choices), text
                found = below[0].choices[names[0]]
            known |= {option for action in found._actions for option in action.option_strings}
        assert set(re.findall(r"--[\w-]+", text)) <= known, text


def test_messages_name_commands_that_exist() -> None:
    names = {command.name for command in all_commands()}
    for file in sorted((ROOT / "kquota_spark").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value.replace("completes kquota by", "")
                assert set(re.findall(r"(?<![\w.-])kquota ([a-z]\w*)(?![\w:])", text)) <= names, (file, text)


def test_what_lifts_quotas_gives_its_reason() -> None:
    lifting = [
        line for line in kquota_lines() if "kquota lift" in line and "--end" not in line and "--yes" in line
    ]
    assert lifting and all("--reason" in line for line in lifting)


def test_options_of_the_job_are_options_of_the_job() -> None:
    job = argparse.ArgumentParser()
    add_options(job)
    given = [line.partition("jobs/audit.py")[2] for line in command_lines() if "jobs/audit.py" in line]
    assert given
    options = {*re.findall(r"--[\w-]+", " ".join(given)), "--only", "--once", "--drain"}
    assert options <= {option for action in job._actions for option in action.option_strings}


def test_every_path_of_the_readme_exists() -> None:
    paths = {*_PATH.findall(EVERYTHING)} - _NAMES_OF_OTHERS
    assert {"conf/kquota.yaml", "jobs/audit.py", "LICENSE"} <= paths
    assert not sorted(path for path in paths if not list(ROOT.glob(path)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]


def links_to_pages(page: Path) -> set[Path]:
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    return {each for each in PAGES for link in links if each.samefile(page.parent / link)}


def test_every_page_is_two_links_from_the_readme_at_most() -> None:
    near = links_to_pages(ROOT / "README.md")
    reached = near.union(*map(links_to_pages, near))
    assert len(near) > 15 and [page.name for page in PAGES[1:] if page not in reached] == []


def test_the_site_has_each_page_once_under_its_reader() -> None:
    listed = re.findall(
        r"^ +- [^:]+: ((?!reference/|notebooks/)\S+\.md)$",
        (ROOT / "mkdocs.yml").read_text(encoding="utf-8"),
        re.M,
    )
    own = ["index.md", "CHANGELOG.md", *(page.name for page in PAGES[1:])]
    assert sorted(listed) == sorted(own)


def test_a_page_has_some_400_lines_at_most() -> None:
    longer = {
        page.name: lines
        for page in PAGES
        if (lines := len(page.read_text(encoding="utf-8").splitlines())) > MOST_LINES
    }
    assert longer == {}


def test_the_readme_names_the_versions_of_the_brokers_that_tests_start() -> None:
    declared = {
        version
        for path in (ROOT / "conf").glob("ivy*.xml")
        for version in re.findall(r'name="kafka_2.13" rev="([\d.]+)"', path.read_text(encoding="utf-8"))
    }
    [named] = re.findall(r"brokers of Kafka ([\d., and]+), and logs", " ".join(README.split()))
    assert set(re.findall(r"[\d.]+\d", named)) == declared == {"3.7.2", "3.9.1", "4.3.0"}


def test_every_make_target_of_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z]+):", makefile, re.MULTILINE)
    lines = [
        *re.findall(r"`make ([a-z ]+)`", EVERYTHING),
        *re.findall(r"^make ([a-z ]+)$", EVERYTHING, re.MULTILINE),
    ]
    named = {word for line in lines for word in line.split()}
    assert {"demo", "test", "bench"} <= named <= set(targets)


def test_the_page_of_analysts_names_every_table() -> None:
    page = (DOCS / "analysts.md").read_text(encoding="utf-8")
    assert [name for name in (table.name for table in TABLES) if f"| `{name}` |" not in page] == []


def test_no_address_of_a_machine_is_in_the_readme() -> None:
    assert not re.search(r"/(?:home|root|work|tmp)/", EVERYTHING)


def test_the_settings_of_the_readme_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KQUOTA_PASSWORD", "secret")
    path = tmp_path / "kquota.yaml"
    passwords = set()
    others = (is_of_policies, is_of_owners)
    of_settings = [text for text in blocks("yaml") if not any(is_other(text) for is_other in others)]
    for number, shown in enumerate(of_settings):
        path.write_text(dedent(shown), encoding="utf-8")
        settings = load_settings(path)
        assert settings.cluster_id == "payments", number
        passwords.add(settings.kafka.options.get("sasl.password"))
    assert "secret" in passwords


def is_of_policies(text: str) -> bool:
    return "\npolicies:" in text


def is_of_owners(text: str) -> bool:
    return text.startswith(("owners:\n", "objective_percent:"))


def test_the_owners_of_the_pages_are_valid(tmp_path: Path) -> None:
    path = tmp_path / "owners.yaml"
    shown = [
        *filter(is_of_owners, blocks("yaml")),
        (ROOT / "conf" / "owners.example.yaml").read_text("utf-8"),
    ]
    assert len(shown) == 3
    for text in shown:
        path.write_text(text, encoding="utf-8")
        assert load_owners(path).names[:2] == ["payments", "search"]


def test_the_policies_of_the_pages_are_valid(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    (tmp_path / "exempt.txt").touch()
    kinds = []
    for shown in filter(is_of_policies, blocks("yaml")):
        path.write_text(shown, encoding="utf-8")
        kinds += [policy.kind for policy in load_policies(path).policies]
    assert kinds == ["penalty", "cluster_quota"]


def test_the_example_of_quotas_has_an_entry_on_each_level() -> None:
    changes = read_quota_file(ROOT / "conf" / "quotas.example.yaml")
    assert {change.entity.level for change in changes} == set(range(1, 9))
    of_bob = [change for change in changes if change.entity == Entity("bob", None)]
    assert [change.value for change in of_bob] == [300_000.0, 250_000.0, 120_000.0]


def test_the_two_request_log_snippets_keep_the_same_requests() -> None:
    log4j = (ROOT / "conf/broker/log4j-request-log.properties").read_text(encoding="ascii")
    lines = [line for line in log4j.splitlines() if line and not line.startswith("#")]
    properties = dict(line.split("=", 1) for line in lines)
    texts = re.findall(r"^log4j\.appender\.kquota\.filter\.\d\.StringToMatch=(.*)$", log4j, re.MULTILINE)
    log4j2 = yaml.safe_load((ROOT / "conf/broker/log4j2-request-log.yaml").read_text(encoding="ascii"))
    appender = log4j2["Configuration"]["Appenders"]["RollingFile"][0]
    filters = appender["Filters"]["StringMatchFilter"]
    assert [found["text"] for found in filters] == texts
    kept = (
        "PRODUCE", "FETCH", "CREATE_TOPICS", "CREATE_PARTITIONS", "DELETE_TOPICS", "ALTER_CLIENT_QUOTAS"
    )  # fmt: skip
    assert texts == ['"replicaState":{', *(f'"requestApiKeyName":"{name}"' for name in kept)]
    assert [found["onMatch"] for found in filters] == ["DENY", *["ACCEPT"] * len(kept)]
    assert [found["onMismatch"] for found in filters] == [*["NEUTRAL"] * len(kept), "DENY"]
    assert properties["log4j.logger.kafka.request.logger"] == "DEBUG, kquota"
    assert properties["log4j.appender.kquota.MaxFileSize"] == appender["SizeBasedTriggeringPolicy"]["size"]
    most = appender["DefaultRolloverStrategy"]["max"]
    assert properties["log4j.appender.kquota.MaxBackupIndex"] == str(most)


def test_the_python_of_the_pages_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    of_model, of_gate = sorted(
        (code for code in blocks("python") if "deltalake" not in code and "hmac" not in code),
        key=lambda code: "FollowedGate" in code,
    )
    exec(compile(of_model, "model.md", "exec"), {})
    # Nothing answers there: the gate goes by its fallback, and 48 kB are within 2 MB/s.
    Path("kquota.yaml").write_text(
        "kafka: {bootstrap_servers: '127.0.0.1:1'}\nenforcement: {decision_topic: kquota.decisions}\n",
        encoding="utf-8",
    )
    exec(compile(of_gate, "gateways.md", "exec"), {})
    assert "fallback 0 None" in capsys.readouterr().out


def public_names() -> list[tuple[str, str]]:
    """Module and name of each entry of the table of public names."""
    section = (ROOT / "kquota_spark/docs/model.md").read_text(encoding="utf-8")
    found = []
    for module, names in re.findall(r"`((?:model|formats|findings)[.\w]+)`: ((?:`\w+`(?:, )?)+)", section):
        found += [(module, name) for name in re.findall(r"`(\w+)`", names)]
    return found


def test_every_public_name_of_the_model_is_there_and_documented() -> None:
    names = public_names()
    assert len(names) > 50
    for module, name in names:
        public = getattr(importlib.import_module(f"kquota_spark.{module}"), name)
        assert name in {"DEFAULT"} or public.__doc__, name
