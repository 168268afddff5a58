"""No code of the shadow can reach a broker or ZooKeeper: its imports, and all that these import, have no way there."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.support.places import ROOT
from tests.support.sources import trees

ENTRIES = (
    "kquota_spark/pipeline/shadow",
    "kquota_spark/model/loops/shadow_bucket",
    "kquota_spark/checkpoints/shadow_file",
    "kquota_spark/checkpoints/pinned",
    "kquota_spark/reports/impact/shadow_effect",
)
"""What reads the file, judges by it, and adds up the result."""
REFUSED = (
    "kquota_spark/kafka/", "kquota_spark/zookeeper/", "kquota_spark/enforcement/", "kquota_spark/enforce/",
    "kquota_spark/gateway/", "kquota_spark/quotas/admin_cluster", "kquota_spark/quotas/zookeeper_cluster",
    "kquota_spark/store/rules_tables",
)  # fmt: skip
"""What can alter a quota, or what the audit believes of quotas."""
LIBRARIES = {"kafka", "confluent_kafka", "kazoo", "socket", "subprocess"}


def _imports(name: str) -> Iterator[str]:
    """Names that a file imports, at its top or in a function; not those for types only."""
    waiting: list[ast.AST] = [trees()[name]]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        waiting.extend(ast.iter_child_nodes(node))


def _file_of(imported: str) -> str | None:
    """The file of ours with an imported name."""
    for name in (imported, imported.rpartition(".")[0]):
        path = f"{name.replace('.', '/')}.py"
        if path in trees():
            return path
    return None


def _reached(entries: Iterable[str]) -> dict[str, str]:
    """All files that are reached, each with the file that imports it."""
    found = {name: "" for name in trees() if name.startswith(tuple(entries))}
    waiting = list(found)
    while waiting:
        name = waiting.pop()
        for file in filter(None, map(_file_of, _imports(name))):
            if file not in found:
                found[file] = name
                waiting.append(file)
    return found


def test_no_admin_call_and_no_write_of_quotas_is_reachable_from_the_shadow() -> None:
    found = _reached(ENTRIES)
    assert len(found) > 40
    assert {file: by for file, by in found.items() if file.startswith(REFUSED)} == {}
    libraries = {(file, name) for file in found for name in _imports(file) if name.split(".")[0] in LIBRARIES}
    assert {(file, name) for file, name in libraries if name.split(".")[0] != "socket"} == set()
    assert all((ROOT / file).exists() for file in found)


def test_the_enforcer_would_be_found() -> None:
    """The same search from `kquota whatif`'s neighbour that alters quotas."""
    found = _reached(["kquota_spark/cli/quotas/alter"])
    assert any(file.startswith(REFUSED) for file in found)
