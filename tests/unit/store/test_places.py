"""Where tables and checkpoints are, from a root of the settings and a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.store.storage import local_place_of, place_of, trimmed


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
