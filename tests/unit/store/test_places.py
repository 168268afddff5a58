"""Where tables and checkpoints are, from a root of the settings and a name: one place for all libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.checkpoints.checkpoints import Checkpoint
from kquota_spark.checkpoints.driver_lock import driver_lock
from kquota_spark.checkpoints.notes import read_note, write_note
from kquota_spark.cli.settings_file import settings_from
from kquota_spark.config.loader import load_settings
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.schema.tables import DECISIONS
from kquota_spark.store.commits import BatchCommits, MicroBatch
from kquota_spark.store.creation import create_table
from kquota_spark.store.reading import query
from kquota_spark.store.storage import delta_table, hadoop_place, local_place_of, place_of, trimmed
from tests.support.tables.table_rows import decision
from tests.support.tables.written_parts import written


@pytest.mark.parametrize(
    ("root", "place", "local"),
    [
        ("/data", "/data/usage", Path("/data/usage")),
        ("/data//", "/data/usage", Path("/data/usage")),
        ("/", "/usage", Path("/usage")),
        ("tables", "tables/usage", Path("tables/usage")),
        ("file:///da%20ta/", "file:///da%20ta/usage", Path("/da ta/usage")),
        ("s3://bucket/kquota/", "s3://bucket/kquota/usage", None),
    ],
)
def test_a_table_is_below_its_root_with_or_without_slashes_at_the_end(
    root: str, place: str, local: Path | None
) -> None:
    assert (place_of(root, "usage"), local_place_of(root, "usage")) == (place, local)


def test_a_name_below_a_uri_of_a_local_disk_is_taken_as_it_is() -> None:
    assert local_place_of("file:///data", "frozen-a%20b.json") == Path("/data/frozen-a%20b.json")


def test_the_root_of_the_file_system_stays_one() -> None:
    assert [trimmed(root) for root in ("/", "//", "/data/", "data")] == ["/", "/", "/data", "data"]


def test_spark_gets_a_local_place_with_its_scheme_and_another_one_as_it_is() -> None:
    # A plain path is of `fs.defaultFS` to it, which on a cluster is HDFS.
    assert hadoop_place("/da ta", "log") == "file:/da ta/log"
    assert hadoop_place("tables", "usage") == f"file:{Path.cwd()}/tables/usage"
    assert hadoop_place("s3a://lake/t/", "usage") == "s3a://lake/t/usage"


_FORMS = ("{path}", "file:{uri}", "file://{uri}", "file:///{uri}", "FILE:{uri}")
"""Of one absolute path; in a URI a blank is written as %20."""


def _roots(form: str, path: Path) -> str:
    return form.format(path=path, uri=str(path).replace(" ", "%20"))


@pytest.mark.parametrize("folder", ["plain", "with a blank", "größe"])
@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize("is_loaded", [True, False], ids=["loaded", "made in code"])
def test_all_forms_of_a_local_root_are_one_place_for_all_that_read_and_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, folder: str, is_loaded: bool
) -> None:
    tables, checkpoints, elsewhere = (
        tmp_path / folder / name for name in ("tables", "checkpoints", "elsewhere")
    )
    elsewhere.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    settings = Settings(tables=_roots(form, tables), checkpoints=_roots(form, checkpoints))
    if is_loaded:
        file = tmp_path / "kquota.yaml"
        file.write_text(f'tables: "{settings.tables}"\ncheckpoints: "{settings.checkpoints}"\n', "utf-8")
        settings = load_settings(file)
        assert (settings.tables, settings.checkpoints) == (str(tables), str(checkpoints))
    create_table(settings, DECISIONS)
    parts = written(settings, decision(0))
    BatchCommits(settings, DECISIONS).add(parts, MicroBatch("q", 0))
    note = place_of(settings.checkpoints, "log.pinned.json")
    write_note(settings, note, b"{}")
    metadata = checkpoints / "log" / "metadata"
    metadata.parent.mkdir()
    metadata.write_text('{"id":"1"}', "utf-8")  # as Spark does
    with (
        driver_lock(settings.checkpoints, "log"),
        pytest.raises(UserError, match="in use by another driver"),
        driver_lock(str(checkpoints), "log"),
    ):
        pass
    # The same bytes: through a plain path, and through the settings.
    assert [path.is_file() for path in (tables / "decisions" / part.path for part in parts)] == [True]
    assert (checkpoints / "log.pinned.json").read_bytes() == read_note(settings, note) == b"{}"
    assert Checkpoint.of(settings, "log").query_id == "1"
    assert hadoop_place(settings.checkpoints, "log") == f"file:{checkpoints}/log"
    counted = "select count(*) from decisions"
    assert query(settings, ["decisions"], counted).rows == [(1,)]
    assert query(Settings(tables=str(tables)), ["decisions"], counted).rows == [(1,)]
    assert delta_table(settings, "decisions").rows().num_rows == 1
    assert list(elsewhere.iterdir()) == []


_EXPECTED = "expected a path on this machine, or a URI of s3a, abfss, gs"
REFUSED = [
    ("s3://lake/t", f"scheme s3 is not supported, {_EXPECTED}: write s3a://"),
    ("s3n://lake/t", f"scheme s3n is not supported, {_EXPECTED}: write s3a://"),
    *(
        (f"{scheme}:{rest}", f"scheme {scheme} is not supported, {_EXPECTED}")
        for scheme, rest in [
            ("hdfs", "//namenode:8020/t"),
            ("hdfs", "///t"),
            ("viewfs", "//cluster/t"),
            ("dbfs", "/t"),
            ("wasbs", "//c@a.blob.core.windows.net/t"),
            ("abfs", "//c@a.dfs.core.windows.net/t"),
            ("oss", "//lake/t"),
            ("http", "//host/t"),
        ]
    ),
    *(
        (root, f"{root!r}, expected file:///PATH, without a host, ? or #")
        for root in ("file://host/t", "file:", "file://", "file:t", "file:///a?b", "file:///a#b")
    ),
    *(
        (root, "not the form of a URI of s3a, expected s3a://BUCKET/PATH")
        for root in ("s3a:/lake/t", "s3a:///t", "s3a://key:canary@lake/t")
    ),
    (
        "abfss://a.dfs.core.windows.net/t",
        "not the form of a URI of abfss, expected abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
    ),
    ("gs:lake", "not the form of a URI of gs, expected gs://BUCKET/PATH"),
    *(
        (root, f"{root!r} has {sign!r} in it, expected a path without % [ ] {{ }} \\ | ^")
        for root, sign in [
            ("/a%20b", "%"),
            ("file:/a%2520b", "%"),
            ("/t[1]", "["),
            ("/a|b", "|"),
        ]
    ),
    ("", f"nothing, {_EXPECTED}"),
]


@pytest.mark.parametrize(("root", "problem"), REFUSED)
@pytest.mark.parametrize("key", ["tables", "tables: {location", "checkpoints"])
def test_a_root_that_not_all_libraries_open_alike_is_refused_when_it_is_loaded(
    tmp_path: Path, key: str, root: str, problem: str
) -> None:
    path = tmp_path / "kquota.yaml"
    path.write_text(f"{key}: '{root}'{'}' if '{' in key else ''}\n", "utf-8")
    with pytest.raises(UserError) as refused:
        load_settings(path)
    assert str(refused.value) == f"{path}: {key.replace(': {', '.')}: {problem}"


def test_a_root_given_to_a_command_is_refused_or_made_plain_too() -> None:
    assert settings_from(None, "file:///da%20ta").tables == "/da ta"
    with pytest.raises(UserError) as refused:
        settings_from(None, "hdfs://namenode/t")
    assert str(refused.value) == f"--tables: scheme hdfs is not supported, {_EXPECTED}"


@pytest.mark.parametrize(
    "root",
    [
        "/data",
        "data/t",
        "/a*b?#c",
        "s3a://lake",
        "S3A://lake/t",
        "abfss://c@a.dfs.core.windows.net/t",
        "gs://lake/t",
    ],
)
def test_a_root_that_all_libraries_open_is_taken(tmp_path: Path, root: str) -> None:
    path = tmp_path / "kquota.yaml"
    path.write_text(f"tables: '{root}'\n", "utf-8")
    assert load_settings(path).tables == root.replace("S3A", "s3a")
