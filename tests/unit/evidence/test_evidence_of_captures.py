"""Decisions of real logs from their lines: rebuilt byte for byte, bundled without other names, false bundles refused.

`python -m tests.evidence_chain` has the same with 1,000 decisions and 50 tampered bundles of four captures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kquota_spark.evidence.bundle import MANIFEST, bundle_of, prove
from kquota_spark.evidence.lines import offsets_of
from kquota_spark.evidence.stored import case_of
from kquota_spark.evidence.verification import verify
from tests.evidence_chain import FOUR, figures_of, foreign_names, limited_produces, shared_rows, tampered
from tests.support.chance import Chance
from tests.support.logs.captures import KRAFT41, Capture
from tests.support.tables.evidence_tables import Evidence, evidence_tables
from tests.support.tables.tampered_bundles import TAMPERED, unzipped

pytestmark = pytest.mark.timeout(300)  # seconds on a calm machine, more beside other work


@pytest.fixture(scope="module")
def kraft(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evidence]:
    with evidence_tables(tmp_path_factory.mktemp("kraft41"), KRAFT41) as found:
        yield found


@pytest.mark.parametrize("capture", FOUR, ids=lambda capture: capture.name)
def test_random_decisions_are_rebuilt_byte_for_byte(capture: Capture, tmp_path: Path, chance: Chance) -> None:
    with evidence_tables(tmp_path, capture) as found:
        of_types = {row["quota_type"] for row in found.rows}
        figures = figures_of(found, chance.sample(found.rows, 6))
    assert {"produce", "fetch"} <= of_types
    assert (figures.equal, figures.refused) == (6, 0)


def test_each_tampering_is_refused_and_its_link_is_named(
    kraft: Evidence, tmp_path: Path, chance: Chance
) -> None:
    found = [*tampered(kraft, chance, len(TAMPERED), tmp_path, per_bundle=len(TAMPERED))]
    assert len(found) == len(TAMPERED)
    assert [(what, link) for what, _, link in found] == [(what, expected) for what, expected, _ in found]


def test_a_bundle_has_no_name_of_another_tenant(tmp_path: Path, chance: Chance) -> None:
    bundles = 0
    with evidence_tables(tmp_path, KRAFT41, has_canaries=True) as found:
        for row in chance.sample(shared_rows(found), 2):
            for user, canaries, own in foreign_names(found, row):
                assert canaries <= own
                assert user.encode() in canaries  # the tenant's own name stays
                bundles += 1
    assert bundles >= 4  # each of these buckets has two users or more


def test_a_bundle_is_the_same_each_time_and_states_where_it_comes_from(kraft: Evidence) -> None:
    row = limited_produces(kraft)[-1]
    case = case_of(kraft.tables, kraft.settings, row)

    def is_own(user: str, _client_id: str) -> bool:
        return user == str(row["users"][0])

    first, second = (bundle_of(prove(case, is_own), is_own) for _ in range(2))
    assert first == second
    manifest = json.loads(unzipped(first)[MANIFEST])
    assert manifest["ring"] == "3.8+/11x1000ms"
    assert manifest["lines_from"] == "table requests"
    assert manifest["offsets"] == [list(each) for each in offsets_of(case.lines)]
    assert manifest["second_ms"] == row["second_ms"]


def test_a_true_bundle_shows_the_text_of_the_tenant(kraft: Evidence, tmp_path: Path) -> None:
    row = max(limited_produces(kraft), key=lambda row: row["throttle_ms"])
    case = case_of(kraft.tables, kraft.settings, row)

    def is_own(user: str, _client_id: str) -> bool:
        return user in set(map(str, row["users"]))

    path = tmp_path / "a.zip"
    path.write_bytes(bundle_of(prove(case, is_own), is_own))
    found = verify(path)
    assert found.false_link is None
    assert [link.name for link in found.links] == [
        "manifest", "hashes", "form", "line", "bytes", "rules", "sample", "rate", "limit", "throttle", "result", "text",
    ]  # fmt: skip
    labels = [line[:10].strip() for line in found.text.splitlines() if line[0] != " "][1:]
    assert labels == ["line", "bytes", "sample", "rate", "limit", "throttle", "verdict", "lines"]
    assert max(map(len, found.text.splitlines())) <= 80
    assert f"= {row['throttle_ms']:,} ms by replay" in " ".join(found.text.split())
