"""What has one place has no second one: paths of tables, the clock, clients of brokers, errors of libraries."""

from __future__ import annotations

import ast
import re
from collections import Counter
from itertools import pairwise

from tests.support.sources import outside, trees

_ROOT = re.compile(r"\b(tables|checkpoints|local_path)\b(?!\.(?!rstrip))|\broot\.rstrip")
"""An expression for the root of the tables or of the checkpoints."""


def _continues_a_root(node: ast.AST) -> bool:
    """Whether `node` puts a name behind the root of the tables or of the checkpoints."""
    match node:
        case ast.JoinedStr(values=values):
            return any(
                isinstance(root, ast.FormattedValue)
                and _ROOT.search(ast.unparse(root.value)) is not None
                and isinstance(rest, ast.Constant)
                and str(rest.value).startswith("/")
                for root, rest in pairwise(values)
            )
        case ast.BinOp(left=root, op=ast.Div()):
            return _ROOT.search(ast.unparse(root)) is not None
    return False


def test_paths_of_tables_and_checkpoints_are_built_in_one_place() -> None:
    assert [
        where for where, node in outside("kquota_spark/store/storage.py") if _continues_a_root(node)
    ] == []


def test_a_path_built_elsewhere_would_be_found() -> None:
    texts = (
        "f\"{settings.tables.rstrip('/')}/usage\"",
        "f'{self._settings.checkpoints}/log'",
        "f\"{root.rstrip('/')}/{table.name}\"",
        "Path(settings.tables) / 'usage'",
        "local_path(settings.checkpoints) / name",
    )
    assert [text for text in texts if not _continues_a_root(ast.parse(text, mode="eval").body)] == []


_INNER = ("config", "enforce", "findings", "formats", "model", "pipeline", "reports", "schema")
_WALL_CLOCK = re.compile(
    r"(\btime\.(time|time_ns|ctime)|\b(datetime|date)\.(now|today|utcnow))\("
    r"|\btime\.(gmtime|localtime|asctime)\(\)|\btime\.strftime\('[^,]*\)$"
)
_ANY_CLOCK = re.compile(r"\btime\.(monotonic|perf_counter|process_time|sleep)(_ns)?\(")


def _calls(*, without: str) -> list[tuple[str, str]]:
    return [(where, ast.unparse(node)) for where, node in outside(without) if isinstance(node, ast.Call)]


def test_the_wall_clock_is_read_in_one_place() -> None:
    calls = _calls(without="kquota_spark/process/clock.py")
    assert [where for where, call in calls if _WALL_CLOCK.match(call)] == []


def test_a_clock_read_elsewhere_would_be_found() -> None:
    reads = ("time.time_ns()", "time.time()", "datetime.now(UTC)", "date.today()", "time.strftime('%H:%M')")
    assert [read for read in reads if not _WALL_CLOCK.match(read)] == []
    assert not _WALL_CLOCK.match("time.strftime('%H:%M', time.gmtime(seconds))")


def test_only_the_edges_wait_or_measure_time() -> None:
    calls = _calls(without="kquota_spark/process/clock.py")
    waits = [where for where, call in calls if _ANY_CLOCK.match(call)]
    assert [where for where in waits if where.split("/")[1] in _INNER] == []


def test_lines_for_who_runs_a_program_are_printed_in_one_place() -> None:
    again = [
        f"{name}: {node.name}"
        for name, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name in ("now_ms", "_now_ms", "_notice")
    ]
    assert again == ["kquota_spark/process/clock.py: now_ms"]
    printed = [
        where
        for where, call in _calls(without="kquota_spark/process/notices.py")
        if call.startswith("print(")
    ]
    assert [where for where in printed if where.split("/")[1] not in ("cli", "embedded", "config")] == []


_CLIENTS = {
    "kquota_spark/kafka/clients.py": {
        "Producer",
        "Consumer",
        "ShareConsumer",
        "AdminClient",
        "KafkaAdminClient",
    },
    "kquota_spark/zookeeper/client.py": {"KazooClient"},
}
_LIBRARIES = ("confluent_kafka", "kafka", "kazoo")
_LOGIN_FILES = (
    "kquota_spark/kafka/client_properties.py",
    # The embedded brokers' own side, and the users that they have.
    "kquota_spark/embedded/settings.py",
    "kquota_spark/embedded/cluster.py",
)


def test_clients_of_servers_are_made_in_one_place() -> None:
    imported = {
        (where.partition(":")[0], alias.name)
        for where, node in outside()
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in _LIBRARIES
        for alias in node.names
    }
    made = {
        (file, name)
        for where, node in outside()
        if isinstance(node, ast.Call)
        for file, name in [(where.partition(":")[0], ast.unparse(node.func).rpartition(".")[2])]
        if any(name in names for names in _CLIENTS.values()) and (file, name) in imported
    }
    assert made == {(file, name) for file, names in _CLIENTS.items() for name in names}


def test_properties_of_a_login_are_known_in_one_place() -> None:
    named = {
        where.partition(":")[0]
        for where, node in outside()
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"(kafka\.)?sasl[._][\w.]+", node.value)
    }
    assert named == set(_LOGIN_FILES)


_SENTINEL = re.compile(
    r"\blevel\b\W*(=|==|>|<>|!=|>=|is (not )?distinct from)\W*0|coalesce\(level|\[.level.\]\) (==|!=|>) 0",
    re.IGNORECASE,
)


def test_only_one_module_tells_the_row_of_a_source_from_rules() -> None:
    tests = [
        where
        for where, node in outside("kquota_spark/store/quota_rows.py")
        if (isinstance(node, ast.Constant) and _SENTINEL.search(str(node.value)))
        or (isinstance(node, ast.Compare | ast.Tuple) and _SENTINEL.search(ast.unparse(node)))
    ]
    assert tests == []


def test_a_second_test_for_the_row_of_a_source_would_be_found() -> None:
    tests = (
        "'select 1 from quota_rules where level is distinct from 0'",
        "'where coalesce(level, 1) > 0'",
        "'where cluster_id = ? and level = 0'",
        "('level', '=', 0)",
        "row['level'] == 0",
        "'level=0/'",
    )
    assert [test for test in tests if not _SENTINEL.search(ast.unparse(ast.parse(test)))] == []


def _handled(kinds: str) -> list[str]:
    """Handlers of errors of these names outside of the modules that turn them into ours."""
    return [
        where
        for where, node in outside("kquota_spark/store/delta/errors.py", "kquota_spark/kafka/clients.py")
        if isinstance(node, ast.ExceptHandler) and node.type is not None
        if re.search(rf"\b({kinds})\b", ast.unparse(node.type))
    ]


def test_errors_of_delta_become_ours_in_one_place() -> None:
    importing = {
        where.partition(":")[0]
        for where, node in outside()
        if isinstance(node, ast.ImportFrom) and node.module == "deltalake.exceptions"
    }
    assert {file.rpartition("/")[0] for file in importing} == {"kquota_spark/store/delta"}
    assert _handled("DeltaError|TableNotFoundError|CommitFailedError") == []


def test_errors_of_kafka_become_ours_in_one_place() -> None:
    handled = Counter(where.partition(":")[0] for where in _handled("KafkaException|KafkaError"))
    assert handled == {
        "kquota_spark/embedded/readiness.py": 1,  # no answer yet: asked again
        "kquota_spark/enforcement/edges/kafka_lease.py": 2,  # a transaction that was fenced: no error
        "kquota_spark/kafka/log_messages.py": 1,  # the lines are then those of the table
        "kquota_spark/kafka/log_topic_checks.py": 1,  # a finding of the doctor
        "kquota_spark/ship/topic.py": 1,  # kept until the next call
    }


def test_no_error_is_made_of_the_rewritten_text_of_another() -> None:
    rewritten = [
        where
        for where, node in outside()
        if isinstance(node, ast.Call) and re.match(r"str\(error\)\.replace\(", ast.unparse(node))
    ]
    assert rewritten == []


_PARSERS = (
    "kquota_spark/cli/completion.py",  # argcomplete hands over what was typed so far
    "kquota_spark/cli/chosen/entity_options.py",  # actions of argparse
)


def test_parsed_arguments_go_no_further_than_a_command() -> None:
    """A command gets them, and functions that make one typed value of them and of nothing else."""
    further = [
        where
        for where, node in outside(*_PARSERS)
        if isinstance(node, ast.FunctionDef)
        for given in [[*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
        if any(each.annotation and ast.unparse(each.annotation) == "argparse.Namespace" for each in given)
        if len([each for each in given if each.arg != "self"]) != 1
    ]
    assert further == []
    kept = [
        where
        for where, node in outside()
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "argparse.Namespace"
    ]
    assert kept == []
    assert [name for name in trees() if "cli" not in name and "Namespace" in ast.unparse(trees()[name])] == []


_SECTION = re.compile(r"\b(settings|kafka|quotas|broker|stream|ship|jmx|enforcement)$")


def _reads_all_settings(node: ast.AST) -> bool:
    """Whether `node` is a `dataclasses.replace` of settings: that wants each variable of them."""
    match node:
        case ast.Call(func=function, args=[first, *_]):
            is_replace = re.fullmatch(r"(dataclasses\.)?replace", ast.unparse(function)) is not None
            return is_replace and _SECTION.search(ast.unparse(first)) is not None
    return False


def test_settings_are_changed_without_reading_them() -> None:
    assert [where for where, node in outside() if _reads_all_settings(node)] == []


def test_settings_that_are_replaced_would_be_found() -> None:
    texts = ("replace(settings, tables=t)", "dataclasses.replace(self._settings.quotas, file='')")
    assert [text for text in texts if not _reads_all_settings(ast.parse(text, mode="eval").body)] == []


_COMMIT = re.compile(
    r"(write_deltalake|\.create_write_transaction|optimize\.compact|\.when_not_matched_\w+)\("
)
_FLUSH = re.compile(r"(\.flush|commits\.sync|self\.sync)\(")
_TABLE = "kquota_spark/store/delta/table.py"


def _files_with(pattern: re.Pattern[str]) -> set[str]:
    return {name for name, tree in trees().items() for text in [ast.unparse(tree)] if pattern.search(text)}


def test_each_commit_is_flushed_to_the_disk() -> None:
    """By the method that makes it; a commit of files by its caller."""
    assert _files_with(_COMMIT) == {_TABLE}
    methods = [node for node in ast.walk(trees()[_TABLE]) if isinstance(node, ast.FunctionDef)]
    texts = {method.name: ast.unparse(method) for method in methods}
    commits = {name for name, text in texts.items() if _COMMIT.search(text)}
    assert commits == {"append", "replace", "merge", "commit", "take_number", "compact"}
    assert {name for name in commits if not _FLUSH.search(texts[name])} == {"commit"}
    callers = _files_with(re.compile(r"\btable\.commit\("))
    assert callers == {"kquota_spark/store/commits.py", "kquota_spark/store/packing.py"}
    assert callers - _files_with(_FLUSH) == set()


_LEASES = "kquota_spark/checkpoints/lease_table.py"


def _makes_a_table_that_cleans_its_log(node: ast.AST) -> bool:
    """Whether `node` makes a Delta table without the properties that its declaration has about the log."""
    match node:
        case ast.Call(func=function, args=given) if ast.unparse(function).endswith("StoredTable.created"):
            return ".log_properties" not in "".join(map(ast.unparse, given[2:3]))
    return False


def test_each_table_is_made_with_the_log_properties_of_its_declaration() -> None:
    """So no writer can forget: commits to a table with these properties do not list its log to clean it.

    Leases are no table of the schema. They have one commit per start of a program, which cleans.
    """
    makers = {where for where, node in outside() if _makes_a_table_that_cleans_its_log(node)}
    assert {where.partition(":")[0] for where in makers} == {_LEASES}
    assert _files_with(re.compile(r"DeltaTable\.create\(")) == {_TABLE}
    assert _files_with(re.compile(r"StoredTable\.created\(")) - {_LEASES} == _files_with(
        re.compile(r"set_log_properties\(")
    ) - {"kquota_spark/store/table_log.py"}


def test_a_table_made_without_them_would_be_found() -> None:
    texts = (
        "StoredTable.created(uri, schema)",
        "StoredTable.created(uri, schema, {}, declared.log_properties)",
    )
    assert all(_makes_a_table_that_cleans_its_log(ast.parse(text, mode="eval").body) for text in texts)
