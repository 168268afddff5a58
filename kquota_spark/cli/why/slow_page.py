"""The page of `kquota slow`: per broker how long requests waited, the suspects with a cure, and the victims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kquota_spark.cli.text.page import Page, Tone
from kquota_spark.formats.text.escape import cut, terminal_text, width
from kquota_spark.formats.text.person_units import counted, or_dash, person_ms, person_span
from kquota_spark.reports.slow.cures import cure_command
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.model.interference.suspects import SlowBroker, Suspect, Victim
    from kquota_spark.model.interference.windows import Client
    from kquota_spark.reports.slow.reading import Period, ReadLines

_MOST_ROWS = 8
_NAME_COLUMNS = 30
_DECIMALS_BELOW_MS = 10
_EMPTY = '""'


def print_broker(page: Page, broker_id: int, one: SlowBroker, period: Period) -> None:
    """Print the answer for one broker.

    Args:
        page: the page to write on.
        broker_id: its id.
        one: its victims and suspects.
        period: the period that was asked about.
    """
    page.paragraph("", f"broker {broker_id}", Tone.TITLE, indent=0)
    length = f"{person_span(period.until_ms - period.since_ms)} from {utc_text(period.since_ms)}"
    page.paragraph("", length, Tone.FAINT, indent=0)
    page.line()
    medians = _change(one.before.median_ms, one.during.median_ms)
    page.paragraph("waits", f"{medians} (median), {_change(one.before.p95_ms, one.during.p95_ms)} (95 %)")
    page.paragraph("slow", _slow_text(one), Tone.BAD if one.victims else Tone.GOOD)
    named = [suspect for suspect in one.suspects if suspect.is_named]
    for suspect in named[:1]:
        page.paragraph("suspect", terminal_text(_suspect_text(suspect)), Tone.BAD)
        if command := cure_command(suspect):
            page.paragraph("cure", "a request quota, half of what it used:")
            page.paragraph("", terminal_text(command))
    if one.victims and not named:
        page.paragraph("suspect", "none: the work of no client goes with the waiting of the others")
    if one.suspects and one.victims:
        page.line()
        _print_suspects(page, one.suspects)
    if one.victims:
        page.line()
        _print_victims(page, one.victims, one.width_ms)


def print_read(page: Page, read: ReadLines) -> None:
    """Print what was read."""
    period = read.period
    begins_ms = min(windows.begins_ms for windows in read.brokers.values())
    text = (
        f"{read.lines:,} lines read; usual is the time from {utc_text(begins_ms)} to {utc_text(period.since_ms)}"
        if any(windows.before for windows in read.brokers.values())
        else f"{read.lines:,} lines read, none of them from before the period: the calm quarter of it is usual"
    )
    unreadable = f"; {read.unreadable:,} unreadable" if read.unreadable else ""
    page.paragraph("", text + unreadable, Tone.FAINT, indent=0)


def _slow_text(one: SlowBroker) -> str:
    if not one.victims:
        return "no client waited longer than usual"
    seconds, whole = (windows * one.width_ms for windows in (one.slow_windows, one.windows))
    return (
        f"{counted(len(one.victims), 'client')} waited longer than usual without a throttle; in "
        f"{person_span(seconds)} of {person_span(whole)} half of all clients did"
    )


def _suspect_text(one: Suspect) -> str:
    return (
        f"{name_of(one.client)} used {100 * one.share:.0f} % of the handler time while others waited, and "
        f"{100 * one.usual_share:.0f} % usually"
    )


def _print_suspects(page: Page, suspects: Sequence[Suspect]) -> None:
    names = _names([each.client for each in suspects])
    columns = max(len("client"), *map(width, names))
    page.line(
        f"{'client':<{columns}}  {'correlation':>11}  {'share':>6}  {'usual':>6}  {'threads':>7}", Tone.FAINT
    )
    for name, each in zip(names, suspects, strict=False):
        shares = f"{100 * each.share:>4.0f} %  {100 * each.usual_share:>4.0f} %"
        page.line(f"{_padded(name, columns)}  {each.correlation:>11.2f}  {shares}  {each.busy_threads:>7.2f}")


def _print_victims(page: Page, victims: Sequence[Victim], width_ms: int) -> None:
    names = _names([each.client for each in victims])
    columns = max(len("waited"), *map(width, names))
    page.line(f"{'waited':<{columns}}  {'slow':>6}  {'mean while slow':>18}  {'95 %':>18}", Tone.FAINT)
    for name, each in zip(names, victims, strict=False):
        means, tails = _change(each.usual_ms, each.slow_ms), _change(each.before.p95_ms, each.during.p95_ms)
        slow = person_span(each.slow_windows * width_ms)
        page.line(f"{_padded(name, columns)}  {slow:>6}  {means:>18}  {tails:>18}")
    if len(victims) > _MOST_ROWS:
        page.line(f"{counted(len(victims) - _MOST_ROWS, 'more client')}: see --output json", Tone.FAINT)


def _change(before_ms: float | None, during_ms: float | None) -> str:
    return f"{or_dash(before_ms, wait_text)} -> {or_dash(during_ms, wait_text)}"


def wait_text(value_ms: float) -> str:
    """A waiting time; that of a quiet broker is below a millisecond."""
    return f"{value_ms:.1f} ms" if value_ms < _DECIMALS_BELOW_MS else person_ms(value_ms)


def _names(clients: Sequence[Client]) -> list[str]:
    return [cut(terminal_text(name_of(client)), _NAME_COLUMNS) for client in clients[:_MOST_ROWS]]


def _padded(name: str, columns: int) -> str:
    return name + " " * (columns - width(name))


def name_of(client: Client) -> str:
    """A client for people; not escaped."""
    user, client_id = client
    if user is None:
        return "all other clients"
    return f"{user or _EMPTY} / {'other client ids' if client_id is None else client_id or _EMPTY}"
