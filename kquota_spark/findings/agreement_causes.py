"""Why verdicts differ from the broker's: those of a time from evidence alone, and a single one tried out.

Each cause has its threshold here, and says it.
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
"""Below this, and with 20 wrong verdicts at least, a cause is looked for. The right settings reached 99.5 % on every
capture of a real broker."""
MISSING_PERCENT = 0.5
"""Of a broker's lines, from which on lines that are not there are named."""
ONE_SIDED = 3
"""Lines that are missing make the replay too mild: so many misses for each false alarm at least."""
COLD_PERCENT = 80.0
"""Of the wrong verdicts, if they lie in the first two horizons of the ring; and at most a quarter of all time may."""
EXCLUDED_PERCENT = 50.0
"""Of the requests, from which on the request quota decides what is left to be judged."""
LEAST_JMX = 20
"""JMX samples of which none belongs to a bucket that was judged."""
FOUND_PERCENT = 80.0
"""Of the broker's throttles, that the replay gave too: with other quotas or amounts it would not."""
EXACT_PERCENT = 85.0
"""Of the throttles that both gave, to the millisecond: 90 to 99 % on every capture of a real broker, and 66 to 72 %
with a tenth of their lines 30 ms late."""
_TRIALS = 64
_NOISES_MS = (5, 25, 100)
"""A few ms are the log's own precision; more happens when the broker pauses between its stages."""
_CONCURRENT_MS = 5
_LOOK_BACK_WINDOWS = 3


class Cause(Enum):
    """What can be wrong; the value is what outputs carry."""

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
    """One cause with the sentence that shows it, and what to do."""

    cause: Cause
    evidence: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEvidence:
    """What the tables say about one broker over some time; requests unless said otherwise.

    `lines_expected` counts the correlation ids that clients that only produce used on their connections, and
    `lines_missing` those between two of one connection that are in no line; `offsets_missing` are gaps in the log
    topic. `clock_ahead_ms` is by how much the lines' own times are at least ahead of the times at which they reached
    Kafka; negative if every line is behind by that much and they hardly differ. `other_throttled` are requests that no
    bandwidth quota counts and that were throttled. `judged_in_jmx` of the `jmx_samples` with a byte rate belong to a
    bucket that was judged; `unknown_tags` of them have tags of no such bucket, and others than user and client id.
    `callback_class` is the broker's client.quota.callback.class where the audit resolves quotas without one. Of the
    produces that the broker `throttled`, the replay gave `throttles_found` a throttle too, `throttles_exact` of them to
    the millisecond.
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
        """Certain verdicts that differ from the broker's."""
        return self.false_positive + self.false_negative

    @property
    def has_dropped(self) -> bool:
        """Whether agreement is so low that there must be a cause."""
        return self.wrong >= LEAST_WRONG and 100 * self.wrong > (100 - LEAST_AGREEMENT_PERCENT) * self.judged


def likely_causes(evidence: BrokerEvidence, config: RateConfig, fit: Fit | None) -> list[LikelyCause]:
    """What explains a drop, the strongest evidence first; nothing if agreement has not dropped.

    A fit, from `ring_check.likely_settings`, has been tried out: it leaves nothing else to explain.
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
            "compare the quotas that the brokers have (kquota resolve) with those of the audit",
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
    """The likely cause of one wrong verdict among those of its bucket, as `kquota replay --show wrong` has it."""
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
    """Whether some small shift of the record times, requests changing places included, gives the other verdict."""
    target = verdicts[index]
    horizon_ms = _LOOK_BACK_WINDOWS * config.horizon_ms
    first = index
    while first > 0 and target.point.record_time_ms - verdicts[first - 1].point.record_time_ms < horizon_ms:
        first -= 1
    # A few requests behind the wrong one may have been recorded before it.
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
