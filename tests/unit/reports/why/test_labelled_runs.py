"""A labelled run of real brokers: the cause that was made is named first, and nobody else is blamed.

The recording is seed 7 of `python -m tests.causes`, which was tried after all thresholds were fixed. The cases with
thread time and the unthrottled ones are left out, because they have most of its lines.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota_spark.model.attribution.detectors import Cause
from tests.causes.recording import Answer, answers
from tests.causes.run import own_lines
from tests.support.places import DATA

RECORDED = DATA / "causes"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    return {each.label: each for each in answers(RECORDED, tmp_path_factory.mktemp("tables"))}


def test_the_cause_that_was_made_is_named_first(found: dict[str, Answer]) -> None:
    named = {label: each.named for label, each in found.items() if each.cause is not None}
    assert named == {
        "limit_cut": [Cause.LIMIT_CUT],
        "growth": [Cause.GROWTH],
        "new_client": [Cause.NEW_CLIENT],
        "shared_bucket": [Cause.SHARED_BUCKET],
        "burst_after_idle": [Cause.BURST],
        "backfill": [Cause.BACKFILL],
        "hot_broker": [Cause.HOT_BROKER],
        "repeats": [Cause.REPEATS],
        "steady": [Cause.STEADY],
    }


def test_nobody_is_blamed_where_all_is_as_before(found: dict[str, Answer]) -> None:
    nulls = {label: each for label, each in found.items() if each.cause is None}
    assert set(nulls) == {"raised", "small_newcomer", "late", "behind", "reconnecting", "uneven"}
    for each in nulls.values():
        assert each.named == [Cause.STEADY]


def test_the_parts_add_up_to_the_delay(found: dict[str, Answer]) -> None:
    for each in found.values():
        assert each.attribution is not None
        assert each.attribution.rest_ms + sum(part.share_ms for part in each.attribution.parts) == (
            each.attribution.delay_ms
        )


def test_without_the_offsets_a_backfill_would_be_growth(tmp_path: Path) -> None:
    backfill = {each.label: each for each in answers(RECORDED, tmp_path, has_lines=False)}["backfill"]
    assert backfill.named == [Cause.GROWTH]


def test_a_recording_keeps_the_produces_and_fetches_of_its_own_users() -> None:
    of_one, of_other = (
        b'{"requestApiKeyName":"%s"},"principal":"User:' + name + b'","listener":"x"}\n'
        for name in (b"calm-1", b"calm-2")
    )
    log = (
        of_one % b"PRODUCE"
        + of_other % b"PRODUCE"
        + of_one % b"FETCH"
        + of_one % b"METADATA"
        + b"a line that is cut"
    )
    assert own_lines(log, ["calm-1"]) == of_one % b"PRODUCE" + of_one % b"FETCH"
    assert own_lines(log, ["calm"]) == b""
