"""Whatever was used: talkers and others make up the whole, and their shares a hundred percent."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.reports.gathered_report import gathered
from tests.support.tables.table_rows import usage

_USED = st.tuples(
    st.sampled_from(["produce", "fetch", "request"]),
    st.sampled_from(["alice", "bob", "carol", "a'; drop table usage", "🦊"]),
    st.sampled_from(["", "etl", "app"]),
    st.integers(1, 3),
    st.integers(0, 9),
    st.integers(0, 2**40),
)


@settings(max_examples=6, deadline=None, print_blob=True)
@given(st.lists(_USED, min_size=1, max_size=40), st.integers(1, 6))
def test_talkers_and_others_make_up_the_whole(
    used: list[tuple[str, str, str, int, int, int]], top: int
) -> None:
    rows = [
        usage(
            at_s,
            tile=tile,
            quota_type=kind,
            user=user,
            client_id=client_id,
            broker_id=broker_id,
            amount=amount,
        )
        for tile, (kind, user, client_id, broker_id, at_s, amount) in enumerate(used)
    ]
    with tempfile.TemporaryDirectory() as root:
        found = {
            of_type.quota_type: of_type for of_type in gathered(Path(root), usages=rows, top=top).talkers
        }
    for kind, of_type in found.items():
        amounts = [amount for other, *_, amount in used if other == kind]
        assert of_type.total == sum(amounts)
        assert sum(talker.amount for talker in of_type.talkers) + of_type.others_amount == of_type.total
        assert len(of_type.talkers) <= top
        clients = {(user, client_id) for other, user, client_id, *_ in used if other == kind}
        # of produce the two quiet seconds at the ends are a client, too
        assert len(of_type.talkers) + of_type.others == len(clients) + (kind == "produce")
        if of_type.total:
            shares = [talker.share_percent for talker in of_type.talkers]
            assert abs(sum(shares) + 100 * of_type.others_amount / of_type.total - 100) < 1e-9
            assert shares == sorted(shares, reverse=True)
            assert all(talker.peak_per_s >= talker.mean_per_s for talker in of_type.talkers)
