"""Right sizes of a report as literal data."""

from __future__ import annotations

from kquota_spark.rightsize.rows import SizeRow


def size_row(user: str, limit: float, target: float, bounds: tuple[float, float] | None) -> SizeRow:
    """A bucket of a user on broker 1 with four weeks of history, bytes per second.

    Args:
        user: its name.
        limit: in force.
        target: its right size.
        bounds: of the demand; None if throttles hide the upper one.
    """
    reason = "throttles hide the demand" if bounds is None else "too low" if limit < target else "too high"
    return SizeRow(
        "produce", user, "", f"users/{user}", 1, limit, target, bounds is None, target / 1.1,
        target / 1.2 if bounds is None else bounds[0], None if bounds is None else bounds[1], target, 0.0, 1.0, 0.5,
        2.0, history_days=28.0, reason=reason,
    )  # fmt: skip
