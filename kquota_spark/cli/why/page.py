"""The causes of one bucket's delay on a page: a sentence, a waterfall that adds up, and who slowed whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.cli.text.waterfall import Step, waterfall
from kquota_spark.cli.why.slow_page import name_of, wait_text
from kquota_spark.formats.text.escape import cut, terminal_text, width
from kquota_spark.formats.text.person_units import (
    bucket_text,
    clock_time,
    counted,
    person_ms,
    person_span,
    rate_text,
    type_text,
)
from kquota_spark.model.attribution.sharing import OTHERS, Sharing
from kquota_spark.reports.why.sentences import evidence_text, main_cure, main_sentence, title_of
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.model.attribution.counterfactuals import Client
    from kquota_spark.reports.slow.beside import SlowFor
    from kquota_spark.reports.why.answers import Reasons

_MOST_CLIENTS = 8
_NAME_COLUMNS = 28
_REST = "without these causes"


class Answer(NamedTuple):
    """A bucket with its causes, and the violation that was asked about; None for a period."""

    cluster_id: str
    episode_id: str | None
    reasons: Reasons
    slow: Sequence[SlowFor] = ()
    """The brokers that were slow for other clients too."""


def print_answer_of(answer: Answer, page: Page) -> None:
    """Print why one bucket was throttled.

    Args:
        answer: the bucket with its causes.
        page: the page to write on.
    """
    found = answer.reasons
    attribution = found.attribution
    bucket = terminal_text(bucket_text(found.bucket.user, found.bucket.client_id, found.bucket.tags))
    page.paragraph("", f"{type_text(found.bucket.quota_type)} bucket of {bucket}", Tone.TITLE, indent=0)
    during = f"{person_span(found.to_ms - found.from_ms)} from {utc_text(found.from_ms)}"
    limit = rate_text(found.bucket.quota_type, found.limit_per_s)
    page.paragraph("", f"{during}, limit {limit} on each broker", Tone.FAINT, indent=0)
    page.line()
    delays = f"{person_ms(found.delay_ms)} by brokers, {person_ms(attribution.delay_ms)} by replay"
    page.paragraph("delay", delays)
    for one in answer.slow:
        page.paragraph("slow", terminal_text(slow_text(one)), Tone.BAD)
    if attribution.main is None:
        page.paragraph("why", "the delay is too short to search for causes", Tone.FAINT)
        return
    page.paragraph("why", terminal_text(main_sentence(found)), Tone.BAD)
    page.paragraph("cure", main_cure(found))
    page.line()
    for line in _drawn(found, page):
        page.line(line)
    for part in attribution.named[1:]:
        page.paragraph(
            "also", f"{title_of(part)}: {terminal_text(evidence_text(part, found.bucket.quota_type))}"
        )
    for part in attribution.named if len(attribution.named) > 1 else ():
        page.paragraph("", f"without the {title_of(part)} alone: {person_ms(part.without_ms)} of delay")
    if found.sharing is not None:
        page.line()
        _print_sharing(found, found.sharing, page)


def slow_text(one: SlowFor) -> str:
    """A slow broker in one sentence; names are not escaped."""
    before, during = map(wait_text, (one.before_ms, one.during_ms))
    clients = counted(len(one.victims), "other client")
    text = f"broker {one.broker_id} was slow: the waiting time of {clients} rose from {before} to {during}"
    return text if one.suspect is None else f"{text}, while {name_of(one.suspect.client)} kept it busy"


def _drawn(found: Reasons, page: Page) -> Iterator[str]:
    """The waterfall: the delay without all causes, then what each adds."""
    attribution = found.attribution
    smaller_ms = sum(part.share_ms for part in attribution.parts if not part.is_named)
    steps = [Step(_REST, attribution.rest_ms)]
    steps += [Step("+ smaller causes", smaller_ms)] if smaller_ms else []
    steps += [Step(f"+ {title_of(part)}", part.share_ms) for part in reversed(attribution.named)]
    bar = "█" if page.has("█") else "#"
    total = Step("= total delay", attribution.delay_ms)
    return waterfall(
        steps,
        total,
        page.columns,
        bar,
        lambda value: person_ms(value) if value >= 0 else f"-{person_ms(-value)}",
    )


def _print_sharing(found: Reasons, sharing: Sharing, page: Page) -> None:
    """Print the delay that each client caused and suffered, and the fairness of each hour."""
    shown = sharing.clients[:_MOST_CLIENTS]
    names = [cut(terminal_text(_name(each.client, sharing)), _NAME_COLUMNS) for each in shown]
    columns = max([len("client"), *map(width, names)])
    page.line(f"{'client':<{columns}}  {'caused':>9}  {'suffered':>9}  {'to others':>9}", Tone.FAINT)
    for name, each in zip(names, shown, strict=True):
        figures = (each.caused_ms, each.suffered_ms, each.of_others_ms)
        texts = "  ".join(
            f"{person_ms(figure) if figure >= 0 else f'-{person_ms(-figure)}':>9}" for figure in figures
        )
        page.line(f"{name}{' ' * (columns - width(name))}  {texts}")
    if len(sharing.clients) > len(shown):
        page.line(
            f"{counted(len(sharing.clients) - len(shown), 'more client')}: see --output json", Tone.FAINT
        )
    if sharing.orders:
        error_ms = max(each.standard_error_ms for each in sharing.clients)
        page.line(
            f"caused: from {sharing.orders} drawn orders, standard error {person_ms(error_ms)} at most",
            Tone.FAINT,
        )
    for hour in found.fairness:
        text = (
            f"fairness from {clock_time(hour.from_ms, with_day=True)}: Jain's index {hour.jain_index:.2f} (1 is fair), "
            f"max-min shortfall {hour.shortfall_percent:.1f} %"
        )
        page.paragraph("", text, Tone.FAINT, indent=0)


def _name(client: Client, sharing: Sharing) -> str:
    if client == OTHERS and sharing.others:
        return counted(sharing.others, "other client")
    return " / ".join(name or '""' for name in client)
