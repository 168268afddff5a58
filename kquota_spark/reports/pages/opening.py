"""The answer with which a page begins: the worst buckets with cause and action, and links to the other sections."""

from __future__ import annotations

from collections.abc import Iterator

from kquota_spark.formats.text.person_units import counted, person_ms
from kquota_spark.reports.pages.headline import headline
from kquota_spark.reports.parts import words
from kquota_spark.reports.parts.page_parts import Link, Opening, Tone, Worst
from kquota_spark.reports.scope.shared_rows import Change
from kquota_spark.reports.sections import AuditReport
from kquota_spark.reports.sections.budgets import budget_tone, short_answer
from kquota_spark.reports.sections.limits import near_and_over, near_tone
from kquota_spark.reports.sections.to_do import MOST_ADVICE, MOST_WORST, action_of, card_anchor
from kquota_spark.reports.sections.unprotected import unprotected_count


def opening(report: AuditReport) -> Opening:
    """The headline with its tiles, the worst three buckets, and one line on the other sections."""
    sentence, tiles = headline(report)
    if report.head.is_first_look:
        return Opening(sentence, tiles)
    worst = tuple(_worst(report))
    more = len(report.throttled) + report.throttled_left_out - len(worst)
    return Opening(sentence, tiles, worst, more, tuple(_others(report)))


def _worst(report: AuditReport) -> Iterator[Worst]:
    cards = {
        one.bucket: (number, one)
        for number, one in reversed(list(enumerate(report.recommendations[:MOST_ADVICE], 1)))
        if one.bucket is not None
    }
    causes = {one.bucket: one.cause for one in report.causes}
    for one in words.most_delayed(report.throttled)[:MOST_WORST]:
        word = words.type_word(one.bucket.quota_type)
        bucket = Link(f"{words.bucket_of(one.bucket, report.head)}, {word}", words.bucket_href(one.bucket))
        delay = person_ms(one.delay_ms) if one.delay_ms else "-"
        time = f"{words.throttled_time(one)} {words.of_the_period(report.head)}"
        if one.bucket not in cards:
            yield Worst(bucket, delay, time, causes.get(one.bucket, ""))
            continue
        number, card = cards[one.bucket]
        action = action_of(card, is_own=report.head.tenant is not None)
        yield Worst(bucket, delay, time, card.cause, action, f"#{card_anchor(number)}")


def _others(report: AuditReport) -> Iterator[tuple[str, Link]]:
    if report.budgets:
        yield "error budget", Link(short_answer(report), "#budgets", budget_tone(report))
    near, _ = near_and_over(report)
    whom = "no bucket" if report.head.tenant is not None else "nobody"
    yield "near a limit", Link(counted(near, "bucket") if near else whom, "#limits", near_tone(near))
    if report.head.tenant is None:
        open_ends = unprotected_count(report)
        none = "not known from JMX" if words.is_sampled(report.confidence) else "nothing"
        text = counted(open_ends, "finding") if open_ends else none
        yield "without a quota", Link(text, "#unprotected", Tone.NEAR if open_ends else Tone.PLAIN)
    yield "changed", Link(_changed(report), "#changes")


def _changed(report: AuditReport) -> str:
    """The number of changes, and the one after which the delay grew most."""
    count = len(report.changes) + report.changes_left_out
    if not count:
        return "nothing"
    grown = sorted(
        ((_growth(one), one) for one in report.changes if _growth(one) > 0), key=lambda pair: -pair[0]
    )
    text = counted(count, "change")
    if not grown:
        return text
    change = grown[0][1]
    return (
        f"{text}, more delay after {len(grown):,} ({words.entity_of(change.entity)}, {_per_minute(change)})"
    )


def _growth(change: Change) -> float:
    effect = change.effect
    return 0.0 if effect is None else (effect.delay_after_ms - effect.delay_before_ms) / effect.length_ms


def _per_minute(change: Change) -> str:
    effect = change.effect
    if effect is None:
        return ""
    before, after = (
        person_ms(round(delay_ms * 60_000 / effect.length_ms))
        for delay_ms in (effect.delay_before_ms, effect.delay_after_ms)
    )
    return f"{before} → {after} per minute"
