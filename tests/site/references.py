"""References made from the code: commands from their parsers, settings, tables and metrics from their declarations."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any
from unittest import mock

from kquota_spark.audit.audit_metrics import AuditMetrics, State
from kquota_spark.cli.command_groups import GROUPS
from kquota_spark.cli.main import parser
from kquota_spark.config.settings import Settings
from kquota_spark.reports.exported.metrics import METRICS
from kquota_spark.schema.tables import TABLES
from tests.support.places import CONF

_COLUMNS = "88"
_SETTINGS_HEAD = """# Settings

For operators. Every key of a settings file with its default, made from the code and from
[conf/kquota.yaml](../../../conf/kquota.yaml).

Lengths of time have a unit: `ms`, `s`, `min`, `h`, `d`. `${NAME}` takes a value from the environment, and
`${file:PATH}` the text of a file."""
_TABLES_HEAD = """# Columns of the tables

For analysts. Every column with its type and meaning, made from the declarations of the tables. `kquota tables NAME`
prints the same. [analysts.md](../analysts.md#the-tables) shows which table
answers which question."""
_METRICS_HEAD = """# Metrics

For operators. Every metric for Prometheus, made from the code. [dashboards.md](../dashboards.md) has the rules and the
board."""
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))
_COMMENT = re.compile(r"(?P<indent> *)(?:(?P<key>[\w.]+):[^#]*?|[^#]*?)(?:# (?P<comment>.*))?")


def references() -> dict[str, str]:
    """The pages, as Markdown by their names."""
    made = {f"reference/commands-{group.replace(' ', '-')}.md": commands_page(group) for group in GROUPS}
    return made | {
        "reference/settings.md": settings_page(),
        "reference/tables.md": tables_page(),
        "reference/metrics.md": metrics_page(),
    }


def commands_page(group: str) -> str:
    """Every command of a group: what it does, its usage, its options."""
    lines = [
        f"# Commands: {group}", "",
        "For everybody who uses `kquota`. This page is made from the commands themselves.",
    ]  # fmt: skip
    commands = _subparsers(parser())
    with mock.patch.dict(os.environ, {"COLUMNS": _COLUMNS}):
        for command in GROUPS[group]:
            for name, one in _leaves(command.name, commands[command.name]):
                lines += ["", f"## kquota {name}", "", *_command(one)]
    return "\n".join(lines) + "\n"


def _subparsers(of: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    actions = (action for action in of._actions if isinstance(action, argparse._SubParsersAction))
    return next((action.choices for action in actions), {})


def _leaves(name: str, of: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    inner = _subparsers(of)
    if not inner:
        yield name, of
    for sub, one in inner.items():
        yield from _leaves(f"{name} {sub}", one)


def _command(of: argparse.ArgumentParser) -> Iterator[str]:
    about = (of.description or "").strip()
    if about:
        yield f"{about[0].upper()}{about[1:]}".removesuffix(".") + "."
    # Continuation lines are indented for the word that is left out.
    yield from (
        "",
        "```text",
        of.format_usage().removeprefix("usage: ").rstrip().replace("\n       ", "\n"),
        "```",
    )
    rows = [row for group in of._action_groups for row in _options(group)]
    if rows:
        yield from ("", *_table(("option", "meaning"), rows))


def _options(group: argparse._ArgumentGroup) -> Iterator[tuple[str, str]]:
    formatter = argparse.HelpFormatter("kquota")
    for action in group._group_actions:
        if action.help == argparse.SUPPRESS or "--help" in action.option_strings:
            continue
        name = formatter._format_action_invocation(action) or str(action.metavar or action.dest)
        yield f"`{name}`", formatter._expand_help(action) if action.help else ""


def settings_page() -> str:
    """Every key of the settings file with its default, and the comment that the file has on it."""
    comments = _comments((CONF / "kquota.yaml").read_text(encoding="utf-8"))
    lines = [_SETTINGS_HEAD]
    sections: dict[str, list[tuple[str, str, str]]] = {}
    for key, default in _keys(Settings(), ""):
        section = key.partition(".")[0] if "." in key else ""
        parent = key.rpartition(".")[0]
        comment = comments.get(key) or ("" if parent == section else comments.get(parent, ""))
        sections.setdefault(section, []).append((f"`{key}`", f"`{default}`", comment))
    for section, rows in sections.items():
        title = f"`{section}`" if section else "The file itself"
        about = (
            [f"{comments[section][:1].upper()}{comments[section][1:]}.", ""] if comments.get(section) else []
        )
        lines += ["", f"## {title}", "", *about, *_table(("key", "default", "meaning"), rows)]
    return "\n".join(lines) + "\n"


def _keys(of: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for one in fields(of):
        if one.name == "given" or one.metadata.get("is_key") is False:
            continue
        value = getattr(of, one.name)
        if is_dataclass(value):
            yield from _keys(value, f"{prefix}{one.name}.")
        elif prefix == "" and one.name == "tables":
            yield from (("tables.location", value), ("tables.requests", of.kept_requests))
        elif "is_asked" in one.metadata:
            yield f"{prefix}{one.name}", "the broker is asked"
        else:
            yield f"{prefix}{one.name}", _default(value, is_duration="Duration" in str(one.type))


def _default(value: Any, *, is_duration: bool) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{key}: {_default(one, is_duration=is_duration)}" for key, one in value.items())
        return f"{{{inside}}}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    if is_duration and isinstance(value, int):
        unit, size = next((unit, size) for unit, size in _UNITS if value % size == 0)
        return f"{value // size} {unit}"
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


def _comments(text: str) -> dict[str, str]:
    """Comments by key; a line of comment alone continues the one above."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = _COMMENT.fullmatch(line)
        if match is None or line.startswith("#"):
            continue
        comment = match["comment"] or ""
        if match["key"]:
            depth = len(match["indent"])
            path = [*(part for part in path if part[0] < depth), (depth, match["key"])]
            found[".".join(name for _, name in path)] = comment
        elif path and comment:
            key = ".".join(name for _, name in path)
            found[key] = f"{found[key]} {comment}".strip()
    return found


def tables_page() -> str:
    """Every column of every table: type and meaning."""
    lines = [_TABLES_HEAD]
    for table in TABLES:
        rows = [(f"`{column.name}`", f"`{column.type}`", column.about) for column in table.columns]
        parts = ", ".join(f"`{name}`" for name in table.partition_by)
        lines += ["", f"## `{table.name}`", "", f"One row is {table.grain}.", ""]
        lines += [f"Partitioned by {parts}.", ""] if parts else []
        lines += _table(("column", "type", "meaning"), rows)
    return "\n".join(lines) + "\n"


class _Everything(dict[str, float]):
    """Values of which none is missing."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> float:
        return 0.0


def metrics_page() -> str:
    """Every metric of the exporter and of the job: kind, labels and meaning."""
    of_exporter = [(f"`kquota_{one.name}`", one.kind, _names(one.labels), one.about) for one in METRICS]
    everything = State({"log": _Everything()}, {"produce": _Everything()}, 0)
    of_job = [
        (f"`{one.name}`", one.kind, _names(one.samples[0][0]), one.about)
        for one in AuditMetrics(Settings())._families(everything, 0.0)
    ]
    head = ("metric", "kind", "labels", "meaning")
    lines = [
        _METRICS_HEAD, "", "## Of the exporter", "", "`kquota exporter` shows these, by default on port 9192.", "",
        *_table(head, of_exporter),
        "", "## Of the job", "", "The audit shows these where `metrics.port` is set.", "",
        *_table(head, of_job),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _names(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return [f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines]


def _cell(text: str) -> str:
    """Text of a cell: names in angle brackets are no HTML, and a bar ends no cell."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    escaped = [part if part.startswith("`") else part.replace("<", "&lt;") for part in parts]
    return "".join(escaped).replace("|", "\\|")
