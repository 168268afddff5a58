"""The holder of the job's lease.

Only an object store has a lease. On a local disk, the row of the job names the process that has the lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kquota_spark.checkpoints.checkpoints import JMX, LOG
from kquota_spark.checkpoints.driver_lease import Beat, LeaseHolder, lease_holder
from kquota_spark.cli.options import SettingsPlace
from kquota_spark.cli.status.part import Part, State, audit_text
from kquota_spark.config.settings import Settings
from kquota_spark.errors import UserError
from kquota_spark.store.reading import utc_text

_PART = "lease"


def lease_parts(settings: Settings, place: SettingsPlace, now_ms: int) -> Sequence[Part]:
    """The leases of both queries as one part; its age is that of the note renewed least recently.

    Args:
        settings: where the checkpoints are, and the lease time.
        place: the settings as the caller named them, for the next command.
        now_ms: epoch ms by the clock of this machine; the notes have times by the holder's clock.

    Returns:
        One part; none on a local disk, and none before the first lease.
    """
    try:
        found = {name: lease_holder(settings, settings.checkpoints, name) for name in (LOG, JMX)}
    except UserError as error:
        return [Part(_PART, State.FAIL, str(error))]
    holders = {name: holder for name, holder in found.items() if holder is not None}
    held = {name: holder for name, holder in holders.items() if not _is_released(holder.beat)}
    if held:
        return [_held_part(held, settings, place, now_ms)]
    last = max((holder.beat for holder in holders.values() if holder.beat), key=_renewed_ms, default=None)
    if last is None:
        return []
    return [Part(_PART, State.OFF, f"released by {_process(last)}", last.renewed_ms)]


def _held_part(
    held: Mapping[str, LeaseHolder], settings: Settings, place: SettingsPlace, now_ms: int
) -> Part:
    names: dict[str, list[str]] = {}
    for name, holder in held.items():
        names.setdefault(_holder_text(holder.beat), []).append(name)
    figure = "; ".join(f"{', '.join(of_holder)}: {text}" for text, of_holder in names.items())
    beats = [holder.beat for holder in held.values()]
    renewed_ms = min(_renewed_ms(beat) for beat in beats) or None
    if renewed_ms is not None and now_ms - renewed_ms <= settings.stream.lease_time:
        return Part(_PART, State.OK, figure, renewed_ms)
    return Part(_PART, State.WARN, f"{figure}; not renewed in time", renewed_ms, audit_text(place))


def _is_released(beat: Beat | None) -> bool:
    return beat is not None and beat.is_released


def _renewed_ms(beat: Beat | None) -> int:
    return 0 if beat is None or beat.renewed_ms is None else beat.renewed_ms


def _process(beat: Beat) -> str:
    return f"process {beat.pid} on {beat.host}"


def _holder_text(beat: Beat | None) -> str:
    if beat is None:
        return "a driver that has not written its note"
    since = "" if beat.since_ms is None else f" since {utc_text(beat.since_ms)}"
    return f"held by {_process(beat)}{since}"
