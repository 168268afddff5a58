"""Why verdicts differ from the broker's: for a whole period from evidence alone, for a single verdict by trials.

The threshold of each cause is defined here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

from kquota_spark.findings.ring_check import LEAST_WRONG, Fit
from kquota_spark.model.measure.points import PointKind
from kquota_spark.model.measure.sampled_rate import RateConfig, RingVariant, SampleRing
from kquota_spark.model.measure.throttle_time import throttle_time_ms
from kquota_spark.model.replay.replay import Verdict

LEAST_AGREEMENT_PERCENT = 99.0
"""Percent of agreement below which the audit searches for a cause, if at least 20 verdicts are wrong.

The right settings reached 99.5 % on every capture of a real broker.
"""
MISSING_PERCENT = 0.5
"""Percent of a broker's lines above which missing or late lines are reported as the cause."""
ONE_SIDED = 3
"""Fewest misses per false alarm for causes that make the replay too mild, such as missing lines."""
COLD_PERCENT = 80.0
"""Fewest percent of the wrong verdicts in the first two horizons of the ring for a cold start as the cause.

These horizons may be at most a quarter of the whole period.
"""
EXCLUDED_PERCENT = 50.0
"""Percent of requests excluded by the request quota above which that is reported as the cause."""
LEAST_JMX = 20
"""Fewest JMX samples for a quota callback as the cause, if none of them belongs to a judged bucket."""
FOUND_PERCENT = 80.0
"""Fewest percent of the broker's throttles that the replay finds too, for quotas and amounts to be right."""
EXACT_PERCENT = 85.0
"""Percent of the common throttles that are exact to the millisecond, below which the log times are the cause.

It is 90 to 99 % on every capture of a real broker. With a tenth of their lines 30 ms late it is 66 to 72 %.
"""
_TRIALS = 64
_NOISES_MS = (5, 25, 100)
"""Shifts (ms) of record times: a few ms are the log's own precision, more if the broker pauses between its stages."""
_CONCURRENT_MS = 5
_LOOKBACK_WINDOWS = 3


class Cause(Enum):
    """Possible causes; outputs contain the value."""

    WINDOW = "window settings"
    VERSION = "broker version"
    CLOCK = "clock"
    MISSING_LINES = "missing lines"
    LATE_LINES = "late lines"
    CALLBACK = "quota callback"
    REQUEST_QUOTA = "request quota"
    RULES_BEHIND = "rules behind"
    COLD_START = "cold start"
    LOG_TIMES = "log times"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LikelyCause:
    """One cause with a sentence of evidence, and advice."""

    cause: Cause
    evidence: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEvidence:
    """What the tables contain about one broker in a period; the numbers count requests unless described otherwise.

    * `lines_expected`: correlation ids that clients which only produce used on their connections.
    * `lines_missing`: correlation ids between two of one such connection that are in no line.
    * `offsets_missing`: offsets missing in the log topic.
    * `clock_ahead_ms`: how much the lines' own times are at least ahead of the times at which they reached Kafka. It is
      negative if every line is behind by that much and they hardly differ.
    * `other_throttled`: throttled requests that no bandwidth quota counts.
    * `jmx_samples`: JMX samples with a byte rate.
    * `judged_in_jmx`: those of them that belong to a judged bucket.
    * `unknown_tags`: those of them with tags of no such bucket, and with other tags than user and client id.
    * `callback_class`: the broker's client.quota.callback.class, if the audit resolves quotas without one.
    * `throttled`: produces that the broker throttled.
    * `throttles_found`: those of them that the replay throttled too.
    * `throttles_exact`: those found with the same throttle to the millisecond.
    """

    requests: int = 0
    judged: int = 0
    false_positive: int = 0
    false_negative: int = 0
    excluded: int = 0
    late: int = 0
    wrong_rules_behind: int = 0
    wrong_at_start: int = 0
    duration_ms: int = 0
    offsets_missing: int = 0
    lines_expected: int = 0
    lines_missing: int = 0
    clock_ahead_ms: int = 0
    other_throttled: int = 0
    jmx_samples: int = 0
    judged_in_jmx: int = 0
    unknown_tags: int = 0
    callback_class: str = ""
    throttled: int = 0
    throttles_found: int = 0
    throttles_exact: int = 0

    @property
    def wrong(self) -> int:
        """Number of certain verdicts that differ from the broker's."""
        return self.false_positive + self.false_negative

    @property
    def has_dropped(self) -> bool:
        """Whether agreement is so low that there must be a cause."""
        return self.wrong >= LEAST_WRONG and 100 * self.wrong > (100 - LEAST_AGREEMENT_PERCENT) * self.judged


def likely_causes(
    evidence: BrokerEvidence, config: RateConfig, fit: Fit | None, resolve: str = "kquota resolve"
) -> list[LikelyCause]:
    """The likely causes of a drop in agreement, the strongest evidence first; none if agreement has not dropped.

    Args:
        evidence: the figures of one broker.
        config: the ring of samples that its verdicts were made with.
        fit: from `ring_check.likely_settings`; it has been tested by a replay, so it is the only cause.
        resolve: the command that reads a client's quota from the brokers, for the advice.
    """
    if not evidence.has_dropped:
        return []
    if fit is not None:
        return [_of_fit(fit, config)]
    found = [*_of_lines(evidence), *_of_quotas(evidence, config)] or list(_of_times(evidence))
    return found or [
        LikelyCause(
            Cause.UNKNOWN,
            f"{evidence.wrong:,} of {evidence.judged:,} verdicts differ, and no cause that is known fits",
            f"compare the quotas that the brokers have ({resolve}) with those of the audit",
        )
    ]


def _of_fit(fit: Fit, config: RateConfig) -> LikelyCause:
    found = fit.comparison
    tried = (
        f"of {found.compared:,} verdicts {found.wrong:,} differ from the broker's as configured, "
        f"{found.wrong_with_other:,} with"
    )
    if fit.clock_ahead_ms:
        way = "ahead of" if fit.clock_ahead_ms > 0 else "behind"
        return LikelyCause(
            Cause.CLOCK,
            f"{tried} a clock that is {abs(fit.clock_ahead_ms) / 1_000:,.1f} s {way} the quotas'",
            "set broker.log_time_zone, or keep the broker's clock with NTP; then restate",
        )
    if fit.config.variant is not config.variant:
        broker = "3.8 or later" if fit.config.variant is RingVariant.FROM_3_8 else "3.7 or older"
        cause, advice = Cause.VERSION, "set broker.version to that of the brokers"
        text = f"{tried} the sample ring of {broker}"
        if (fit.config.num_samples, fit.config.window_ms) != (config.num_samples, config.window_ms):
            text += f" and {_window(fit.config)}"
        return LikelyCause(cause, text, advice)
    return LikelyCause(
        Cause.WINDOW,
        f"{tried} {_window(fit.config)}",
        "set broker.quota_window_num and quota_window_size_seconds as in the brokers' configuration",
    )


def _window(config: RateConfig) -> str:
    return f"quota.window.num {config.num_samples} and quota.window.size.seconds {config.window_ms // 1_000}"


def _of_lines(evidence: BrokerEvidence) -> Iterator[LikelyCause]:
    is_mild = evidence.false_negative >= ONE_SIDED * max(evidence.false_positive, 1)
    missing = 100 * evidence.lines_missing > MISSING_PERCENT * evidence.lines_expected
    if is_mild and (evidence.offsets_missing or missing):
        gaps = (
            f", and {evidence.offsets_missing:,} offsets of the log topic" if evidence.offsets_missing else ""
        )
        yield LikelyCause(
            Cause.MISSING_LINES,
            f"{evidence.lines_missing:,} of {evidence.lines_expected:,} requests that producers numbered have no "
            f"line{gaps}; {evidence.false_negative:,} misses against {evidence.false_positive:,} false alarms",
            "check for rotated files that were not shipped, filters of the appender, retention of the topic",
        )
    if is_mild and 100 * evidence.late > MISSING_PERCENT * evidence.requests:
        yield LikelyCause(
            Cause.LATE_LINES,
            f"{evidence.late:,} of {evidence.requests:,} requests came too late to be counted",
            "raise stream.allowed_lateness, or let the shippers keep up",
        )
    if is_mild and evidence.other_throttled:
        yield LikelyCause(
            Cause.REQUEST_QUOTA,
            f"{evidence.other_throttled:,} requests were throttled that no bandwidth quota counts: a request quota "
            "that the audit does not know",
            "see that the source of the quotas is complete",
        )


def _of_quotas(evidence: BrokerEvidence, config: RateConfig) -> Iterator[LikelyCause]:
    wrong = evidence.wrong
    is_unlike = evidence.jmx_samples >= LEAST_JMX and evidence.judged_in_jmx == 0
    if evidence.callback_class:
        yield LikelyCause(
            Cause.CALLBACK,
            f"the broker has client.quota.callback.class {evidence.callback_class}, and the audit resolves without it",
            "set quotas.callback to a class that does the same",
        )
    elif evidence.unknown_tags or is_unlike:
        tags = f", {evidence.unknown_tags:,} have tags of a quota callback" if evidence.unknown_tags else ""
        yield LikelyCause(
            Cause.CALLBACK,
            f"{evidence.judged_in_jmx:,} of {evidence.jmx_samples:,} byte rates in JMX belong to a bucket that was "
            f"judged{tags}",
            "check for client.quota.callback.class on the brokers, and set quotas.callback",
        )
    if 100 * evidence.excluded > EXCLUDED_PERCENT * evidence.requests:
        yield LikelyCause(
            Cause.REQUEST_QUOTA,
            f"{evidence.excluded:,} of {evidence.requests:,} requests are under a request quota and left out",
            "what is left is a small part: judge it by its own number, not by the percentage",
        )
    if 2 * evidence.wrong_rules_behind > wrong:
        yield LikelyCause(
            Cause.RULES_BEHIND,
            f"{evidence.wrong_rules_behind:,} of {wrong:,} differ where quota changes were not yet known",
            "keep the watcher running, and restate that time",
        )
    start_ms = 2 * config.horizon_ms
    if 100 * evidence.wrong_at_start >= COLD_PERCENT * wrong and 4 * start_ms <= evidence.duration_ms:
        yield LikelyCause(
            Cause.COLD_START,
            f"{evidence.wrong_at_start:,} of {wrong:,} differ within {start_ms // 1_000} s of the broker's first line",
            "nothing: the audit does not know what was sent before, and a cold broker is slow",
        )


def _of_times(evidence: BrokerEvidence) -> Iterator[LikelyCause]:
    found, exact = evidence.throttles_found, evidence.throttles_exact
    are_right = found >= LEAST_WRONG and 100 * found >= FOUND_PERCENT * evidence.throttled
    if are_right and 100 * exact < EXACT_PERCENT * found:
        yield LikelyCause(
            Cause.LOG_TIMES,
            f"{found:,} of the broker's {evidence.throttled:,} throttles were found, so the quotas are right, but only "
            f"{100 * exact / found:.0f} % of them to the millisecond: the broker logs late when it handled requests",
            "check the load of the broker's processors: as long as it logs late, verdicts near a limit can be wrong",
        )


def cause_of(verdicts: Sequence[Verdict], index: int, config: RateConfig) -> str:
    """The likely cause of one wrong verdict among those of its bucket, as `kquota replay --show wrong` prints it."""
    wrong = verdicts[index]
    if wrong.cause is not None:
        return wrong.cause.value
    time_ms = wrong.point.record_time_ms
    nearby = verdicts[max(0, index - 20) : index + 20]
    if any(
        other.point.kind == PointKind.THROTTLED_FETCH
        and abs(other.point.record_time_ms - time_ms) <= _CONCURRENT_MS
        for other in nearby
    ):
        return "a throttled fetch of the bucket overlapped: its bytes counted until they were un-recorded"
    for noise_ms in _NOISES_MS:
        if _flips_under_noise(verdicts, index, config, noise_ms):
            return f"record times off by up to {noise_ms} ms, in another order, give the broker's verdict"
    return "not explained by the clock: check window settings, broker version and quotas"


def _flips_under_noise(verdicts: Sequence[Verdict], index: int, config: RateConfig, noise_ms: int) -> bool:
    """Whether some small shift of the record times, which may also reorder requests, gives the broker's verdict."""
    target = verdicts[index]
    horizon_ms = _LOOKBACK_WINDOWS * config.horizon_ms
    first = index
    while first > 0 and target.point.record_time_ms - verdicts[first - 1].point.record_time_ms < horizon_ms:
        first -= 1
    # A few requests after the wrong one may have been recorded before it.
    part = verdicts[first : index + 8]
    random = Random(target.point.record_time_ms)  # noqa: S311 - reproducible noise, not a secret
    for _ in range(_TRIALS):
        shifted = sorted(
            (v.point.record_time_ms + random.randint(-noise_ms, noise_ms), place)
            for place, v in enumerate(part)
        )
        ring = SampleRing(config)
        for time_ms, place in shifted:
            window_ms = ring.record(part[place].point.amount, time_ms)
            if place == index - first:
                is_throttled = throttle_time_ms(ring.total, window_ms, target.governing.limit_per_s) > 0
                if is_throttled == (target.point.observed_throttle_ms > 0):
                    return True
                break
    return False
