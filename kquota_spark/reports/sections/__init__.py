"""The sections of the report, the same for every form in which it is drawn.

Each module answers one question of the page: with its figures from the tables, its sentence, charts and tables on the
page, and its files for programs. A new section is a module with a `SECTION`, its fields of `AuditReport`, and its place
in `SECTIONS`. Texts are as clients sent them; the code that draws a page escapes them.

In reading order: changes, rates, throttled, why, budgets, limits, buckets, spread, usage, unprotected, to_do,
shadow, capacity, trust.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kquota_spark.reports.impact.shadow_effect import ShadowEffect
from kquota_spark.reports.right_sizes import sizes_section
from kquota_spark.reports.scope.shared_rows import (
    Change,
    Confidence,
    Head,
    RaiseSum,
    Recommendation,
    ThrottledBucket,
    Unprotected,
)
from kquota_spark.reports.sections import (
    buckets,
    budgets,
    capacity,
    changes,
    limits,
    shadow,
    throttled,
    to_do,
    trust,
    unprotected,
    usage,
    why,
)
from kquota_spark.reports.sections.buckets import PeriodBucket
from kquota_spark.reports.sections.budgets import OwnerBudget
from kquota_spark.reports.sections.capacity import Capacity
from kquota_spark.reports.sections.limits import HeatMap
from kquota_spark.reports.sections.rates import Line
from kquota_spark.reports.sections.spread import Skew
from kquota_spark.reports.sections.throttled import ThrottleSpread
from kquota_spark.reports.sections.to_do import BucketCause
from kquota_spark.reports.sections.trust import ThrottlePair
from kquota_spark.reports.sections.usage import Talkers
from kquota_spark.reports.sections.why import BucketWhy
from kquota_spark.rightsize.rows import SizeRow

SECTIONS = (
    throttled.SECTION,
    why.SECTION,
    limits.SECTION,
    buckets.SECTION,
    usage.SECTION,
    changes.SECTION,
    unprotected.SECTION,
    to_do.SECTION,
    sizes_section.SECTION,
    shadow.SECTION,
    capacity.SECTION,
    trust.SECTION,
    budgets.SECTION,
)
"""All sections, in the order of a page."""
WITHOUT_QUOTAS = (usage.SECTION, to_do.SECTION, unprotected.SECTION, capacity.SECTION, trust.SECTION)
"""Those of a page without any quota: nobody can be throttled, so usage and where to begin come first."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The whole report. Lists are cut to the largest items, beside the count and the sum of those left out."""

    head: Head
    confidence: Confidence
    throttled: Sequence[ThrottledBucket] = ()
    """Most total delay first."""
    throttled_left_out: int = 0
    delay_left_out_ms: int = 0
    """Total delay of the buckets that are left out."""
    causes: Sequence[BucketCause] = ()
    """For the buckets with the most total delay, as far as known."""
    why: Sequence[BucketWhy] = ()
    """By replay, for the buckets with the most total delay."""
    throttle_pairs: tuple[ThrottlePair, ...] = ()
    throttle_spreads: tuple[ThrottleSpread, ...] = ()
    """Users with the most total delay first."""
    budgets: Sequence[OwnerBudget] = ()
    """The least left first; of a tenant's page only the tenant's own. Empty without a file of owners."""
    are_budgets_slow: bool = False
    """The budgets are left out, because reading their period takes too long."""
    heat: tuple[HeatMap, ...] = ()
    """One heat map per quota type."""
    lines: Sequence[Line] = ()
    talkers: tuple[Talkers, ...] = ()
    skew: Sequence[Skew] = ()
    changes: Sequence[Change] = ()
    changes_left_out: int = 0
    unprotected: Sequence[Unprotected] = ()
    unprotected_left_out: int = 0
    recommendations: Sequence[Recommendation] = ()
    recommendations_left_out: int = 0
    raises: Sequence[RaiseSum] = ()
    right_sizes: Sequence[SizeRow] = ()
    """Buckets with two weeks of history, the furthest from its target first. Empty on a tenant's page."""
    right_sizes_chosen: int = 0
    """Number of the buckets that were chosen for a right size, with and without two weeks of history."""
    are_right_sizes_slow: bool = False
    """The right sizes are left out, because reading their weeks takes too long."""
    capacity: Sequence[Capacity] = ()
    shadow: ShadowEffect | None = None
    """None without shadow quotas."""
    buckets: Sequence[PeriodBucket] = ()
    """Every bucket with a limit: the list is not cut."""
    notes: tuple[str, ...] = ()
    """Other facts that a reader needs, one sentence each."""
