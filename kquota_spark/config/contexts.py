"""Reads and writes the file of contexts: saved connections to clusters, by name.

It holds addresses and paths of other files, never a secret. A login stays in the property file or the settings that
a context names.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import yaml

from kquota_spark.config.loader import read_yaml_as
from kquota_spark.errors import UserError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The connection to one cluster: to its brokers, to its ZooKeeper, or by a settings file."""

    bootstrap_server: str = ""
    command_config: str = ""
    """Client properties for the brokers; an absolute path."""
    zookeeper: str = ""
    config: str = ""
    """Settings file with ZooKeeper's login and time limits; without an address also the cluster. An absolute path."""

    @property
    def address(self) -> str:
        """The cluster for messages: `Kafka broker1:9092`, `ZooKeeper zk1:2181/kafka`, `the cluster of FILE`."""
        if self.bootstrap_server:
            return f"Kafka {self.bootstrap_server}"
        return f"ZooKeeper {self.zookeeper}" if self.zookeeper else f"the cluster of {self.config}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """All contexts, and the name of the default one; empty for none."""

    in_use: str = ""
    contexts: dict[str, Context] = field(default_factory=dict)


def contexts_file(environment: Mapping[str, str]) -> Path:
    """The path of the file: $KQUOTA_CONTEXTS, else kquota/contexts.yaml below $XDG_CONFIG_HOME or ~/.config.

    Raises:
        UserError: the home directory is unknown.
    """
    if named := environment.get("KQUOTA_CONTEXTS"):
        return Path(named)
    # The XDG specification: a path that is not absolute counts as none.
    above = environment.get("XDG_CONFIG_HOME", "")
    try:
        root = Path(above) if Path(above).is_absolute() else Path.home() / ".config"
    except RuntimeError as error:
        raise UserError("no home directory: set KQUOTA_CONTEXTS to the file of contexts") from error
    return root / "kquota" / "contexts.yaml"


def load_contexts(path: Path) -> Contexts:
    """The contexts of a file; none if the file does not exist.

    Raises:
        UserError: the file cannot be read, or one line for each problem in it.
    """
    try:
        is_there = path.exists()
    except OSError as error:  # such as that of another user's home, after su
        raise UserError(
            f"{path}: cannot be read: {error.strerror}: KQUOTA_CONTEXTS names another file of contexts"
        ) from error
    if not is_there:
        return Contexts()
    found = read_yaml_as(Contexts, path)
    problems = list(_problems(found))
    if problems:
        raise UserError("\n".join(f"{path}: {problem}" for problem in problems))
    return found


def save_contexts(path: Path, contexts: Contexts) -> None:
    """Replace the file, with access for its owner only.

    Raises:
        UserError: it cannot be written, or one line for each problem in the contexts.
    """
    problems = list(_problems(contexts))
    if problems:
        raise UserError("\n".join(problems))
    data = {
        "in_use": contexts.in_use,
        "contexts": {
            name: {key: value for key, value in asdict(context).items() if value}
            for name, context in sorted(contexts.contexts.items())
        },
    }
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".contexts-")  # mode 600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink()
            raise
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error


def _problems(found: Contexts) -> Iterator[str]:
    for name, context in found.contexts.items():
        where = f"contexts.{name}"
        if _NAME.fullmatch(name) is None:
            yield f"{where[:80]}: expected a name of letters, digits, '.', '_' and '-'"
        if context.bootstrap_server and context.zookeeper:
            yield f"{where}: bootstrap_server and zookeeper, expected one of them"
        if not (context.bootstrap_server or context.zookeeper or context.config):
            yield f"{where}: expected bootstrap_server, zookeeper or config"
        if context.command_config and not context.bootstrap_server:
            yield f"{where}.command_config: only with bootstrap_server; the login of ZooKeeper is in config"
    if found.in_use and found.in_use not in found.contexts:
        yield f"in_use: {found.in_use!r:.60}, expected one of {', '.join(found.contexts) or 'contexts'}"
