"""The three most important facts, as one sentence and as three numbers."""

from __future__ import annotations

from kquota_spark.formats.text.person_units import amount_text, counted, person_ms, person_percent
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Tile, Tone
from kquota_spark.reports.sections import AuditReport
from kquota_spark.reports.sections.limits import near_and_over, near_tone
from kquota_spark.reports.sections.unprotected import unprotected_count
from kquota_spark.reports.sections.usage import Talker, Talkers


def headline(report: AuditReport) -> tuple[str, tuple[Tile, ...]]:
    """A sentence, and the facts in it as tiles."""
    if report.head.is_first_look:
        return _without_quotas(report)
    return _own(report) if report.head.tenant is not None else _cluster(report)


def delay_sentence(report: AuditReport) -> str:
    """How many buckets were throttled, and their delay in all; JMX alone does not show the delay."""
    count = len(report.throttled) + report.throttled_left_out
    is_own = report.head.tenant is not None
    if not count:
        return f"{'You were not' if is_own else 'Nobody was'} throttled."
    names = {one.bucket for one in report.buckets} | {one.bucket for one in report.throttled}
    of_all = f" of {len(names):,}" if report.buckets and len(names) > count else ""
    buckets = f"{count:,}{of_all} {'bucket' if count == 1 and not of_all else 'buckets'}"
    delay_ms = sum(one.delay_ms for one in report.throttled) + report.delay_left_out_ms
    delay = f": {person_ms(delay_ms)} of delay in all." if delay_ms else "; JMX does not show the delay."
    if is_own:
        return f"You were throttled in {buckets}{delay}"
    return f"{buckets} {'was' if count == 1 else 'were'} throttled{delay}"


def _cluster(report: AuditReport) -> tuple[str, tuple[Tile, ...]]:
    ranked = words.most_delayed(report.throttled)
    near, over = near_and_over(report)
    throttled = len(ranked) + report.throttled_left_out
    open_ends = unprotected_count(report)
    detail, place = "no request waited for a quota", "#throttled"
    if ranked:
        name = words.bucket_of(ranked[0].bucket, report.head)
        detail = f"{name}: {words.throttled_time(ranked[0])} {words.of_the_period(report.head)}"
        place = words.bucket_href(ranked[0].bucket)
    is_known = bool(report.unprotected) or not words.is_sampled(report.confidence)
    tiles = (
        Tile("Throttled", counted(throttled, "bucket"), detail, words.throttled_tone(ranked), place),
        Tile(
            "Near the limit",
            counted(near, "bucket"),
            f"at 80 to 100 % of the quota; {over:,} beyond"
            if near or over
            else "all below 80 % of the quota",
            near_tone(near),
            "#limits",
        ),
        Tile(
            "Unprotected",
            counted(open_ends, "finding") if is_known else "-",
            _gravest(report, open_ends) if is_known else "JMX does not show it",
            Tone.NEAR if open_ends else Tone.GOOD if is_known else Tone.PLAIN,
            "#unprotected",
        ),
    )
    return delay_sentence(report), tiles


def _gravest(report: AuditReport, open_ends: int) -> str:
    if not report.unprotected:
        return "every rule meters what it names"
    if not open_ends:
        return "all traffic is metered, some limits are shared"
    high = sum(one.severity == "high" for one in report.unprotected)
    # The most severe findings come first. If all shown ones are severe, those left out may be as well.
    some = "at least " if high == len(report.unprotected) and report.unprotected_left_out else ""
    return f"{some}{high:,} grave" if high else "none grave"


def _own(report: AuditReport) -> tuple[str, tuple[Tile, ...]]:
    head = report.head
    ranked = words.most_delayed(report.throttled)
    if not ranked:
        tile = Tile("Throttled", "0 %", words.of_the_period(head), Tone.GOOD, "#throttled")
    else:
        worst, tone = ranked[0], words.throttled_tone(ranked)
        detail = f"{words.of_the_period(head)}, in {words.type_word(worst.bucket.quota_type)}"
        tile = Tile("Throttled", words.throttled_time(worst), detail, tone, words.bucket_href(worst.bucket))
    peak = words.highest(value for heat in report.heat for row in heat.quota_used_percent for value in row)
    if peak is None:
        of_quota = Tile("Highest use", "-", "no traffic of yours met a limit", href="#limits")
    else:
        tone = words.used_tone(peak)
        of_quota = Tile("Highest use", person_percent(peak), "of your own quota", tone, "#limits")
    used = sorted(
        ((one.quota_type, sum(talker.amount for talker in one.talkers)) for one in report.talkers),
        key=lambda one: words.in_order(one[0]),
    )
    texts = [f"{amount_text(kind, amount)} {words.done_word(kind)}" for kind, amount in used if amount]
    amount, detail = texts[0] if texts else "nothing", ", ".join(texts[1:]) or "in this period"
    return delay_sentence(report), (tile, of_quota, Tile("Used", amount, detail, href="#usage"))


def _without_quotas(report: AuditReport) -> tuple[str, tuple[Tile, ...]]:
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
    whole = f"{total} {words.done_word(of_type.quota_type)} by {counted(clients, 'client')} without a limit"
    begin = f"{counted(starts, 'starting value')} below"
    return f"No quota is set: {whole}, {share} of it by {name}; {begin}.", (
        Tile("Without a limit", counted(clients, "client"), f"{total} {word}", Tone.NEAR, "#usage"),
        Tile("Largest client", share, f"{name}, of all {word}", href="#usage"),
        Tile("Starting values", f"{starts:,}", "under Where to begin", href="#to-do"),
    )


def _largest(report: AuditReport) -> tuple[Talkers, Talker] | None:
    with_traffic = [of_type for of_type in report.talkers if of_type.talkers]
    if not with_traffic:
        return None
    of_type = next((one for one in with_traffic if one.quota_type == "produce"), with_traffic[0])
    return of_type, max(of_type.talkers, key=lambda one: one.amount)
