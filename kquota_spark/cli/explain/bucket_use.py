"""The recent use of a bucket by the tables: the clients in it, and its total delay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kquota_spark.cli.explain.explanation import Answer, ClientQuotas, shown_name
from kquota_spark.errors import UserError
from kquota_spark.formats.text.escape import terminal_text
from kquota_spark.formats.text.person_units import counted, iso_time, person_ms
from kquota_spark.model.quotas.quota_types import BANDWIDTH, QuotaType
from kquota_spark.store.reading import utc_text

if TYPE_CHECKING:
    from kquota_spark.reports.clients.seen_clients import DelayInHour, SeenInHour

_MOST_SHARERS = 10
_MOST_REQUESTS = 50_000
"""Maximum number of requests for which the cause of a delay is searched."""


class BucketUse(NamedTuple):
    """What the tables have of a bucket in the hour before the time of the question; None is not known."""

    seen: SeenInHour | None
    """The clients in it."""
    delay: DelayInHour | None
    why: str = ""
    """The main cause of the delay with its part; empty if it is not known."""

    def lines(self) -> list[tuple[str, str]]:
        """Labels and sentences for people."""
        seen = [] if self.seen is None else [("seen", _seen_words(self.seen))]
        delay = [] if self.delay is None else [("delay", _delay_words(self.delay))]
        return seen + delay + ([("why", terminal_text(self.why))] if self.why else [])

    def notes(self) -> list[str]:
        """A note if the bytes of the bucket lack requests without a logged size, e.g. from share consumers."""
        count = 0 if self.seen is None else self.seen.share_fetches
        note = f"the log has no size for {count:,} requests of that hour: verdicts near them are uncertain"
        return [note] if count else []

    def as_dict(self) -> dict[str, Any]:
        """The fields of JSON."""
        return {
            "seen": None if self.seen is None else _seen_row(self.seen),
            "delay": None if self.delay is None else _delay_row(self.delay),
            "why": self.why or None,
        }


def bucket_use(question: ClientQuotas, answer: Answer) -> BucketUse:
    """The recent use of the bucket of an answer."""
    delay = _delay(question, answer)
    return BucketUse(_seen(question, answer), delay, _why(question, answer, delay))


def _seen(question: ClientQuotas, answer: Answer) -> SeenInHour | None:
    """The clients of the bucket in the hour before the time of the question; None if no table contains this."""
    cluster_id = question.history.cluster_id
    if cluster_id is None or answer.quota_type is QuotaType.CONTROLLER_MUTATION:
        return None
    from kquota_spark.reports.clients.seen_clients import seen_in_hour

    bucket = answer.governed.bucket
    is_clients = not (question.has_callback or bucket.user) or bool(bucket.client_id)
    seen = seen_in_hour(
        question.settings,
        cluster_id,
        quota_type=answer.quota_type.value if answer.quota_type in BANDWIDTH else None,
        user="" if question.has_callback else bucket.user,
        client_id=bucket.client_id if is_clients else None,
        before_ms=None if question.is_of_now else question.at_ms,
    )
    if seen is None:
        return None
    inside = [
        one for one in seen.identities if question.governed(answer.quota_type, *one[:2]).bucket == bucket
    ]
    return seen._replace(identities=inside)


def _delay(question: ClientQuotas, answer: Answer) -> DelayInHour | None:
    """The total delay of the bucket in the hour before the time of the question; None without tables."""
    cluster_id = question.history.cluster_id
    if cluster_id is None:
        return None
    from kquota_spark.pipeline.sent import bucket_tags
    from kquota_spark.reports.clients.seen_clients import delay_in_hour

    return delay_in_hour(
        question.settings,
        cluster_id,
        answer.quota_type.value,
        bucket_tags(answer.governed.bucket, has_tags=question.has_callback),
        before_ms=None if question.is_of_now else question.at_ms,
    )


def _why(question: ClientQuotas, answer: Answer, delay: DelayInHour | None) -> str:
    """The main cause of the delay of that hour, by replay; empty if there is no delay or no record."""
    if delay is None or not delay.delay_ms or question.has_callback:
        return ""
    from kquota_spark.reports.scope.shared_rows import BucketName
    from kquota_spark.reports.why.reasons import Bounds, reasons
    from kquota_spark.reports.why.recorded import Wanted
    from kquota_spark.reports.why.sentences import main_sentence

    bucket = answer.governed.bucket
    wanted = Wanted(
        BucketName(answer.quota_type.value, bucket.user, bucket.client_id), delay.from_ms, delay.to_ms
    )
    settings = question.settings.changed(
        cluster_id=question.history.cluster_id or question.settings.cluster_id
    )
    try:
        found = reasons(settings, [wanted], Bounds(_MOST_REQUESTS, is_sharing_of_steady=True)).found
    except UserError:
        return ""  # a source without the requests: the other lines need none
    return main_sentence(found[wanted]) if found else ""


def _seen_words(seen: SeenInHour) -> str:
    during = f"in the hour to {utc_text(seen.to_ms)}"
    if not seen.identities:
        return f"nobody in this bucket {during}"
    shown = seen.identities[:_MOST_SHARERS]
    names = ", ".join(f"{shown_name(user)} / {shown_name(client)}" for user, client, _ in shown)
    more = len(seen.identities) - len(shown)
    return f"{names}{f' and {more:,} more' if more else ''} (user / client id, most bytes first) {during}"


def _delay_words(delay: DelayInHour) -> str:
    during = f"in the hour to {utc_text(delay.to_ms)}"
    if delay.delay_ms is None:
        return f"no decision of this bucket {during}"
    if not delay.throttled_requests:
        return f"none {during}"
    requests = counted(delay.throttled_requests, "throttled request")
    return f"{person_ms(delay.delay_ms)} in total, {requests} {during}"


def _seen_row(seen: SeenInHour) -> dict[str, Any]:
    shown = seen.identities[:_MOST_SHARERS]
    return {
        "from": iso_time(seen.from_ms),
        "to": iso_time(seen.to_ms),
        "count": len(seen.identities),
        "share_fetches": seen.share_fetches,
        "identities": [{"user": user, "client_id": client_id} for user, client_id, _ in shown],
    }


def _delay_row(delay: DelayInHour) -> dict[str, Any]:
    times = {"from": iso_time(delay.from_ms), "to": iso_time(delay.to_ms)}
    return {**times, "delay_ms": delay.delay_ms, "throttled_requests": delay.throttled_requests}
