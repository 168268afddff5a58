"""Random sets of quotas with the names that break formats."""

from __future__ import annotations

from hypothesis import strategies as st

from kquota_spark.model.quotas.entities import DEFAULT, Default, Entity, IpEntity
from kquota_spark.model.quotas.quota_set import QuotaSet
from kquota_spark.model.quotas.quota_types import AnyKey, IpQuotaKey, QuotaKey

NASTY = (
    "<default>", "default", "no", "null", "~", "1e6", "0x10", "12:30:45", "true", "2001-01-01", " ", " a ", "-", "-y",
    "#", "a#b", "a: b", "- a", "{}", "[a]", "*a", "&a", "!!int", "%41", "%%", "a+b", "a*b", "a/b", "a\\b", "'", '"',
    "o'neil", "''", "a,b", "CN=app 1,OU=x", "' are x=1", "the default client-id", "users/x", "User:alice", "a\tb",
    "a\r", "${a}", "$${a}", "%{if}", "$$$${", "é", "e\u0301", "\u2028", "\x85", "\x7f", "\U0001f600", "\u202eabc", "Ä",
    "\ufeff",
)  # fmt: skip
IPS: tuple[str | Default, ...] = ("10.0.0.1", "10.0.0.2", "::1", "2001:db8::7", "host.example.org")
_WHOLE: st.SearchStrategy[float] = st.integers(0, 2**63).map(float)
_DOUBLES: st.SearchStrategy[float] = st.floats(0, allow_infinity=False, allow_nan=False)
_VALUES: dict[AnyKey, st.SearchStrategy[float]] = {
    QuotaKey.PRODUCER_BYTE_RATE: _WHOLE,
    QuotaKey.CONSUMER_BYTE_RATE: _WHOLE,
    QuotaKey.REQUEST_PERCENTAGE: _DOUBLES,
    QuotaKey.CONTROLLER_MUTATION_RATE: _DOUBLES,
}
_Values = st.SearchStrategy[dict[AnyKey, float]]
_OF_USERS: _Values = st.fixed_dictionaries({}, optional=_VALUES).filter(bool)
_OF_IPS: _Values = st.fixed_dictionaries(
    {IpQuotaKey.CONNECTION_CREATION_RATE: st.integers(0, 2**31 - 1).map(float)}
)
NAMES = st.sampled_from(NASTY) | st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


def quota_sets(names: st.SearchStrategy[str] = NAMES, *, most: int = 6) -> st.SearchStrategy[QuotaSet]:
    """Sets over all levels, each with quotas of any type."""
    name: st.SearchStrategy[str | Default | None] = names | st.just(DEFAULT) | st.none()
    users = st.tuples(name, name).filter(lambda pair: pair != (None, None)).map(lambda pair: Entity(*pair))
    ips = st.sampled_from([IpEntity(ip) for ip in (DEFAULT, *IPS)])
    of_users = st.dictionaries(users, _OF_USERS, max_size=most)
    of_ips = st.dictionaries(ips, _OF_IPS, max_size=2)
    return st.tuples(of_users, of_ips).map(lambda both: {**both[0], **both[1]})


def names_of(quotas: QuotaSet) -> set[str]:
    """All names of users and client ids in a set."""
    parts = [part for e in quotas if isinstance(e, Entity) for part in (e.user, e.client_id)]
    return {part for part in parts if isinstance(part, str)}
