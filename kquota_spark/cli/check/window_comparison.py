"""The effect that other values of quota.window.num and quota.window.size.seconds would have had on logged requests.

This is the model alone. No log shows what clients would have sent under other throttling.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kquota_spark.cli.check.replay_results import bucket_columns, place_columns
from kquota_spark.cli.text.page import Page
from kquota_spark.cli.text.render import Report, Row, Shown, finite, show
from kquota_spark.formats.text.person_units import person_bytes, person_pair_ms, person_rate
from kquota_spark.model.measure.sampled_rate import RateConfig, SampleRing
from kquota_spark.model.measure.throttle_time import throttle_time_ms
from kquota_spark.model.quotas.quota_types import BANDWIDTH
from kquota_spark.model.replay.replay import Verdict
from kquota_spark.replay.files import Replay

_SHAPE = re.compile(r"([0-9]{1,4})x([0-9]{1,5})")
_CENSORED = (
    "demand is censored: clients that are throttled send later or less, so the other windows would have seen "
    "other requests; a throttled fetch counts as empty, as the log has no size of it"
)


def window_shape(text: str) -> tuple[int, int]:
    """Number and seconds of `30x1`, as a type of argparse."""
    match = _SHAPE.fullmatch(text)
    if match is None or 0 in (shape := (int(match.group(1)), int(match.group(2)))):
        msg = f"{text!r}, expected NUMxSECONDS such as 30x1"
        raise argparse.ArgumentTypeError(msg)
    return shape


def compared(found: Replay, config: RateConfig, shape: tuple[int, int]) -> dict[str, Any]:
    """Replay the requests with the broker's windows and with others.

    Args:
        found: the replay.
        config: windows of the broker.
        shape: number and seconds of the other windows.

    Returns:
        Totals, and one row per limited bucket.
    """
    other = replace(config, num_samples=shape[0], window_ms=shape[1] * 1_000)
    rows = []
    for key, verdicts in found.verdicts.items():
        limits = [v.governing.limit_per_s for v in verdicts if v.governing.limit_per_s is not None]
        if limits and key.quota_type in BANDWIDTH:
            rows.append(
                bucket_columns(key)
                | {
                    "limit_per_s": finite(limits[-1]),
                    "requests": len(verdicts),
                    "now": _effect(verdicts, config, limits[-1]),
                    "other": _effect(verdicts, other, limits[-1]),
                }
            )
    return {
        "now": _totals(config, rows, "now"),
        "other": _totals(other, rows, "other"),
        "note": _CENSORED,
        "rows": rows,
    }


def _effect(verdicts: Sequence[Verdict], config: RateConfig, limit_per_s: float) -> dict[str, Any]:
    """The effect of one window shape on a bucket; the burst is that of its last limit."""
    ring = SampleRing(config)
    throttles_ms = []
    for verdict in verdicts:
        window_ms = ring.record(verdict.point.amount, verdict.point.record_time_ms)
        throttle_ms = throttle_time_ms(ring.total, window_ms, verdict.governing.limit_per_s)
        if throttle_ms > 0:
            throttles_ms.append(throttle_ms)
    return {
        "burst_bytes": finite((config.num_samples - 1) * config.window_ms * limit_per_s / 1_000),
        "throttled_requests_by_replay": len(throttles_ms),
        "delay_by_replay_ms": sum(throttles_ms),
    }


def _totals(config: RateConfig, rows: Sequence[Row], name: str) -> dict[str, Any]:
    return {
        "window_num": config.num_samples,
        "window_size_seconds": config.window_ms // 1_000,
        "burst_seconds": (config.num_samples - 1) * config.window_ms // 1_000,
        "throttled_requests_by_replay": sum(row[name]["throttled_requests_by_replay"] for row in rows),
        "delay_by_replay_ms": sum(row[name]["delay_by_replay_ms"] for row in rows),
    }


def print_comparison(comparison: Row) -> None:
    """Print the comparison: buckets that either shape throttles, longest first, and the totals below."""
    page = Page()
    now, other = comparison["now"], comparison["other"]
    rows = [
        row
        for row in comparison["rows"]
        if row["now"]["delay_by_replay_ms"] or row["other"]["delay_by_replay_ms"]
    ]
    rows.sort(key=lambda row: -max(row["now"]["delay_by_replay_ms"], row["other"]["delay_by_replay_ms"]))
    shown = (
        *place_columns(rows),
        Shown("limit", lambda row: person_rate(row["limit_per_s"]), rank=3),
        Shown("burst", lambda row: " / ".join(_bytes(row[name]["burst_bytes"]) for name in ("now", "other"))),
        Shown("throttled requests", lambda row: _both(row, "throttled_requests_by_replay")),
        Shown(
            "total delay",
            lambda row: person_pair_ms(row["now"]["delay_by_replay_ms"], row["other"]["delay_by_replay_ms"]),
        ),
    )
    page.line()
    page.paragraph(
        "",
        f"windows of {_shape(now)} / {_shape(other)}: burst after idleness, throttled requests, total delay; "
        "by replay only",
        indent=0,
    )
    show(Report("kquota replay", (), rows, shown, when_empty="no bucket is throttled by either"), "table")
    page.paragraph(
        "total",
        f"burst of {now['burst_seconds']} / {other['burst_seconds']} s of the limit, throttled "
        f"{now['throttled_requests_by_replay']:,} / {other['throttled_requests_by_replay']:,} requests, "
        f"total delay {person_pair_ms(now['delay_by_replay_ms'], other['delay_by_replay_ms'])}",
        indent=6,
    )
    page.paragraph("note:", _CENSORED, indent=6)


def _shape(totals: Row) -> str:
    return f"{totals['window_num']}x{totals['window_size_seconds']} s"


def _bytes(amount: float | None) -> str:
    return "-" if amount is None else person_bytes(round(amount))


def _both(row: Row, name: str) -> str:
    return " / ".join(f"{row[side][name]:,}" for side in ("now", "other"))
