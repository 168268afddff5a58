"""The columns of `kquota violations --why`: the main cause of the first violations, and for programs all causes."""

from __future__ import annotations

from typing import Any

from kquota_spark.cli.options import lines
from kquota_spark.cli.question import Asked, Found
from kquota_spark.cli.text.render import Row, Shown
from kquota_spark.reports.scope.shared_rows import BucketName
from kquota_spark.reports.why.answers import Reasons
from kquota_spark.reports.why.of_scope import WITHIN, left_out_text
from kquota_spark.reports.why.reasons import OfCluster, reasons_of_clusters
from kquota_spark.reports.why.recorded import Wanted
from kquota_spark.reports.why.rows import cause_rows
from kquota_spark.reports.why.sentences import main_sentence, short_text

_MOST_EXPLAINED = 8
"""Maximum number of violations with a cause."""
_WITHIN = WITHIN._replace(is_sharing_of_steady=True)
_SHORT = "why_short"


def added(asked: Asked, found: Found) -> Found:
    """The violations with the columns `why` and `causes`, which are empty after the first ones."""
    first = found.rows[:_MOST_EXPLAINED]
    most_delay_first = sorted(first, key=lambda row: -(row["delay_ms"] or row["delay_by_replay_ms"] or 0))
    answers, left_out = reasons_of_clusters(asked.settings, list(map(_wanted, most_delay_first)), _WITHIN)
    texts = [_texts(answers.get(_wanted(row))) for row in first]
    texts += [_texts(None)] * (len(found.rows) - len(first))
    return found._replace(
        columns=(*found.columns, "why", "causes"),
        rows=[{**row, **text} for row, text in zip(found.rows, texts, strict=True)],
        shown=(*found.shown, Shown("why", lambda row: row[_SHORT] or "-", is_text=True, keep=32)),
        footer=lines(found.footer, left_out_text(left_out, "violation", _MOST_EXPLAINED)),
    )


def _wanted(row: Row) -> OfCluster:
    bucket = BucketName(
        row["quota_type"], row["bucket_user"], row["bucket_client_id"], row["bucket_tags"] or ""
    )
    end_ms = row["last_second"] + 1_000 if row["end_time"] is None else row["end_time"]
    return row["cluster_id"], Wanted(bucket, row["start_time"], end_ms)


def _texts(found: Reasons | None) -> dict[str, Any]:
    """The main cause as a sentence and in a few words, and all causes; None if they are not known."""
    if found is None:
        return {"why": None, _SHORT: None, "causes": None}
    causes = list(cause_rows(found))
    return {"why": main_sentence(found) or None, _SHORT: short_text(found), "causes": causes}
