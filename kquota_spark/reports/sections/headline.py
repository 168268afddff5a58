"""The three most important facts, as one sentence and as three numbers."""

from __future__ import annotations

from kquota_spark.formats.text.person_units import amount_text, person_percent
from kquota_spark.reports.scope.audit_report import AuditReport, Talker, Talkers, ThrottledBucket
from kquota_spark.reports.sections import words
from kquota_spark.reports.sections.limits import near_and_over
from kquota_spark.reports.sections.parts import Tile, Tone


def headline(report: AuditReport) -> tuple[str, tuple[Tile, ...]]:
    """A sentence, and the facts in it as tiles."""
    if report.head.is_first_look:
        return _first_look(report)
    return _own(report) if report.head.tenant is not None else _cluster(report)


def _worst(report: AuditReport) -> ThrottledBucket | None:
    return max(report.throttled, key=lambda one: one.time_in_throttle_percent, default=None)


def _cluster(report: AuditReport) -> tuple[str, tuple[Tile, ...]]:
    worst = _worst(report)
    near, over = near_and_over(report)
    throttled = len(report.throttled) + report.throttled_left_out
    open_ends = len(report.unprotected) + report.unprotected_left_out
    if worst is None:
        first = "Nobody was throttled"
        detail = "no request waited for a quota"
    else:
        share = f"{words.share_text(worst.time_in_throttle_percent)} {words.of_the_stretch(report.head)}"
        name = words.bucket_of(worst.bucket, report.head)
        first = f"{words.counted(throttled, 'bucket was', 'buckets were')} throttled, {name} for {share}"
        detail = f"{name}: {share}"
    others = sum(heat.near_unthrottled for heat in report.heat)
    if others:
        second = f"{others:,} {'more ' if throttled else ''}came to 80 % of a limit or more"
    else:
        second = f"{'nobody else' if throttled else 'nobody'} came near a limit"
    is_known = open_ends > 0 or not words.is_sampled(report.confidence)
    if open_ends:
        third = f"{words.counted(open_ends, 'finding leaves', 'findings leave')} traffic unprotected"
    else:
        third = "no traffic is unprotected" if is_known else "JMX does not show what is unprotected"
    tiles = (
        Tile("Throttled", words.counted(throttled, "bucket"), detail, Tone.OVER if throttled else Tone.GOOD),
        Tile(
            "Near the limit",
            words.counted(near, "bucket"),
            f"at 80 to 100 % of the quota; {over:,} beyond"
            if near or over
            else "all below 80 % of the quota",
            Tone.NEAR if near else Tone.GOOD,
        ),
        Tile(
            "Unprotected",
            words.counted(open_ends, "finding") if is_known else "-",
            _gravest(report) if is_known else "JMX does not show it",
            Tone.NEAR if open_ends else Tone.GOOD if is_known else Tone.PLAIN,
        ),
    )
    return f"{first}; {second}; {third}.", tiles


def _gravest(report: AuditReport) -> str:
    if not report.unprotected:
        return "every rule meters what it names"
    high = sum(one.severity == "high" for one in report.unprotected)
    # The most severe findings come first. If all shown ones are severe, those left out may be as well.
    some = "at least " if high == len(report.unprotected) and report.unprotected_left_out else ""
    return f"{some}{high:,} grave" if high else "none grave"


def _own(report: AuditReport) -> tuple[str, tuple[Tile, ...]]:
    head = report.head
    worst = _worst(report)
    if worst is None:
        first = "You were not throttled"
        tile = Tile("Throttled", "0 %", words.of_the_stretch(head), Tone.GOOD)
    else:
        share = words.share_text(worst.time_in_throttle_percent)
        word = words.type_word(worst.bucket.quota_type)
        first = f"You were throttled {share} {words.of_the_stretch(head)}"
        tile = Tile("Throttled", share, f"{words.of_the_stretch(head)}, in {word}", Tone.OVER)
    peak = words.highest(value for heat in report.heat for row in heat.quota_used_percent for value in row)
    if peak is None:
        second = "no limit of your own applied to you"
        of_quota = Tile("Highest use", "-", "no traffic of yours met a limit")
    else:
        second = f"you came to {person_percent(peak)} of your own quota"
        of_quota = Tile("Highest use", person_percent(peak), "of your own quota", words.used_tone(peak))
    used = sorted(
        ((one.quota_type, sum(talker.amount for talker in one.talkers)) for one in report.talkers),
        key=lambda one: words.in_order(one[0]),
    )
    texts = [f"{amount_text(kind, amount)} {words.done_word(kind)}" for kind, amount in used if amount]
    third = f"{' and '.join(texts[:2])}" if texts else "nothing was used that counts"
    return f"{first}; {second}; {third}.", (
        tile,
        of_quota,
        Tile("Used", texts[0] if texts else "nothing", ", ".join(texts[1:]) or "in this period"),
    )


def _first_look(report: AuditReport) -> tuple[str, tuple[Tile, ...]]:
    largest = _largest(report)
    starts = len(report.recommendations) + report.recommendations_left_out
    if largest is None:
        return "No quota is set, and nothing was sent in this period.", ()
    of_type, first = largest
    total = amount_text(of_type.quota_type, of_type.total)
    clients = len(of_type.talkers) + of_type.others
    name = words.client_of(first.user, first.client_id, report.head)
    share = words.share_text(first.share_percent)
    word = words.type_word(of_type.quota_type)
    whole = (
        f"{total} {words.done_word(of_type.quota_type)} by {words.counted(clients, 'client')} without a limit"
    )
    begin = f"{words.counted(starts, 'starting value')} below"
    return f"No quota is set: {whole}, {share} of it by {name}; {begin}.", (
        Tile("Without a limit", words.counted(clients, "client"), f"{total} {word}", Tone.NEAR),
        Tile("Largest client", share, f"{name}, of all {word}"),
        Tile("Starting values", f"{starts:,}", "under Where to begin"),
    )


def _largest(report: AuditReport) -> tuple[Talkers, Talker] | None:
    with_traffic = [of_type for of_type in report.talkers if of_type.talkers]
    if not with_traffic:
        return None
    of_type = next((one for one in with_traffic if one.quota_type == "produce"), with_traffic[0])
    return of_type, max(of_type.talkers, key=lambda one: one.amount)
