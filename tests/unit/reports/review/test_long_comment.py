"""A comment stays below the length that GitHub takes, whatever it is about."""

from __future__ import annotations

from kquota_spark.model.compare.quota_diff import EffectChange, Governs, Identity
from kquota_spark.model.quotas.entities import Entity
from kquota_spark.model.quotas.quota_set import QuotaEdit
from kquota_spark.model.quotas.quota_types import QuotaKey
from kquota_spark.model.quotas.resolve import Bucket
from kquota_spark.reports.review.comment import MOST_BYTES, comment_of
from kquota_spark.reports.review.review import Affected, Period, Replayed, Review, SuspiciousName

KEY = QuotaKey.PRODUCER_BYTE_RATE


def _review(names: list[str]) -> Review:
    edits = [QuotaEdit(Entity(name, name), KEY, 2e6, 1e6) for name in names]
    groups = [
        Affected("produce", (Bucket(name, name),), ((name, name),), ((2e6, 1e6),), False, ("r",), 1, Replayed())
        for name in names
    ]  # fmt: skip
    possible = [
        EffectChange(Identity(name, name), "produce", Governs(2e6, None, None), Governs(1e6, None, None))
        for name in names
    ]
    suspicious = [SuspiciousName(Entity(name, name), "user: begins or ends with a blank") for name in names]
    return Review(edits, groups, possible, Period(0, 1_000, len(names)), (), (), suspicious, (), 0)


def test_thousands_of_names_of_the_longest_form_fit() -> None:
    # Each character becomes a reference of nine: `&#128163;` and more.
    text = comment_of(_review([f"{'|' * 3_000}{number}" for number in range(2_000)]), 2)
    assert len(text.encode()) <= MOST_BYTES
    assert "more rows: `kquota review --output json` has all." in text


def test_few_clients_are_all_in_the_comment() -> None:
    text = comment_of(_review([f"user-{number}" for number in range(50)]), 2)
    assert all(f"`user-{number}`" in text for number in range(50))
    assert "more rows" not in text
