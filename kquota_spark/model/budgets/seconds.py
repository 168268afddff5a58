"""Sets of seconds: a bit per second, so that a second counts once, however often and in which order it is added."""

from __future__ import annotations

import zlib

HOUR_S = 3_600
_HOUR_BYTES = HOUR_S // 8
_WHOLE_HOUR = (1 << HOUR_S) - 1


class SecondSet:
    """Whole seconds since the epoch. Each hour is one number; its highest bit is the first second."""

    def __init__(self) -> None:
        self._hours: dict[int, int] = {}

    def __len__(self) -> int:
        return sum(bits.bit_count() for bits in self._hours.values())

    def add(self, first_s: int, end_s: int) -> None:
        """Add the seconds from `first_s` until before `end_s`."""
        for hour in range(first_s // HOUR_S, -(-end_s // HOUR_S)):
            self.add_hour(hour, _part_of(hour, first_s, end_s))

    def add_hour(self, hour: int, bits: int) -> None:
        """Add seconds of an hour.

        Args:
            hour: hours since the epoch.
            bits: 3,600 bits, the highest for the first second.
        """
        found = self._hours.get(hour, 0) | bits
        # Whole hours are the usual case: all of them are one object.
        self._hours[hour] = _WHOLE_HOUR if found == _WHOLE_HOUR else found

    def add_all(self, other: SecondSet) -> None:
        """Add the seconds of another set."""
        for hour, bits in other._hours.items():
            self.add_hour(hour, bits)

    def count(self, first_s: int, end_s: int) -> int:
        """Number of seconds of the set from `first_s` until before `end_s`."""
        hours = range(first_s // HOUR_S, -(-end_s // HOUR_S))
        # The shorter way: the hours of the period, or those of the set.
        wanted = hours if len(hours) <= len(self._hours) else filter(hours.__contains__, self._hours)
        return sum((self._hours.get(hour, 0) & _part_of(hour, first_s, end_s)).bit_count() for hour in wanted)

    def first_s(self, from_s: int = 0) -> int | None:
        """The first second of the set from a time on, s since the epoch; None if there is none."""
        for hour in sorted(hour for hour in self._hours if hour >= from_s // HOUR_S):
            if bits := self._hours[hour] & _part_of(hour, from_s, (hour + 1) * HOUR_S):
                return hour * HOUR_S + HOUR_S - bits.bit_length()
        return None

    def within(self, first_s: int, end_s: int) -> SecondSet:
        """The seconds from `first_s` until before `end_s`, as another set."""
        found = SecondSet()
        for hour, bits in self._hours.items():
            if kept := bits & _part_of(hour, first_s, end_s):
                found.add_hour(hour, kept)
        return found

    def packed(self, first_s: int) -> bytes:
        """The set as bytes for `add_packed`: the hours from one on, 450 bytes each, compressed by zlib.

        Args:
            first_s: start of the first hour, s since the epoch; no second of the set is before it.
        """
        last = max((hour for hour, bits in self._hours.items() if bits), default=-1)
        hours = range(first_s // HOUR_S, last + 1)
        return zlib.compress(
            b"".join(self._hours.get(hour, 0).to_bytes(_HOUR_BYTES, "big") for hour in hours)
        )

    def add_packed(self, first_s: int, packed: bytes) -> None:
        """Add the seconds of another set.

        Args:
            first_s: start of its first hour, s since the epoch.
            packed: the result of `packed` for this hour.
        """
        hours = zlib.decompress(packed)
        for number, place in enumerate(range(0, len(hours), _HOUR_BYTES)):
            if bits := int.from_bytes(hours[place : place + _HOUR_BYTES], "big"):
                self.add_hour(first_s // HOUR_S + number, bits)

    def forget_before(self, first_s: int) -> None:
        """Remove the hours that end before a second."""
        for hour in [hour for hour in self._hours if (hour + 1) * HOUR_S <= first_s]:
            del self._hours[hour]


def _part_of(hour: int, first_s: int, end_s: int) -> int:
    """The bits of the seconds of an hour that lie in a period."""
    begin, end = max(0, first_s - hour * HOUR_S), min(HOUR_S, end_s - hour * HOUR_S)
    if begin == 0 and end == HOUR_S:
        return _WHOLE_HOUR
    return ((1 << (end - begin)) - 1) << (HOUR_S - end) if begin < end else 0
