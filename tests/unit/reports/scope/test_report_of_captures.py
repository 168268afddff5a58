"""The report over the request log of real brokers, against sums of the very lines."""

from __future__ import annotations

from pathlib import Path

from kquota_spark.reports.pages.gathering import gather_report
from kquota_spark.reports.scope.period import Period
from kquota_spark.reports.scope.shared_rows import Trust
from kquota_spark.store.reading import open_tables
from tests.support.logs.captures import ZK39_PLAIN
from tests.support.tables.capture_tables import write_capture

_LINES = """
select quota_type, sum(charged_bytes)::bigint, sum(observed_throttle_ms)::bigint, min(record_time_ms),
       max(record_time_ms)
from requests where kind = 'request' and quota_type in ('produce', 'fetch') and point_kind is not null
group by quota_type order by quota_type
"""


def test_the_report_of_a_capture_adds_up_to_its_lines(tmp_path: Path) -> None:
    settings = write_capture(tmp_path, ZK39_PLAIN)
    with open_tables(settings, "requests") as tables:
        lines = {kind: numbers for kind, *numbers in tables.query(_LINES).rows}
    first_ms = min(numbers[2] for numbers in lines.values())
    last_ms = max(numbers[3] for numbers in lines.values())
    period = Period(first_ms // 1_000 * 1_000, last_ms // 1_000 * 1_000 + 1_000)
    page = gather_report(settings, period, made_at_ms=last_ms, top=1_000)
    assert not [note for note in page.notes if note.startswith("the tables cover")]
    assert (page.confidence.trust, page.confidence.reasons) == (Trust.YES, ())
    used = {
        one.quota_type: (one.total, sum(talker.delay_ms or 0 for talker in one.talkers))
        for one in page.talkers
    }
    assert used == {kind: (amount, throttle_ms) for kind, (amount, throttle_ms, *_) in lines.items()}
    assert page.throttled
    assert all(0 < one.time_throttled_percent <= 100 for one in page.throttled)
