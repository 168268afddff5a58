"""Keeps the log of a table short, so that a commit costs the same however old the table is.

On a local disk each commit of deltalake lists the whole `_delta_log` three times, and each opening of the table once.
That is 2.5 ms per 1,000 entries and commit. So commits of the job do not clean the log (`Table.log_properties`), and
its driver trims the log beside them. It trims by number and not by time, so that neither the trigger nor a clock
matters. `kquota maintain` removes entries older than the retention from the logs of all tables, also of those that no
driver trims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kquota_spark.config.roots import local_path
from kquota_spark.config.settings import Settings
from kquota_spark.schema.columns import Table
from kquota_spark.store.delta.errors import committed
from kquota_spark.store.storage import log_of

if TYPE_CHECKING:
    from kquota_spark.store.delta.table import StoredTable

KEPT_ENTRIES = 500
"""Newest commits that stay in a table's log: 40 minutes at the default trigger. Followers are seconds behind."""
KEPT_ON_STORES = 20_000
"""The same on an object store: a day. Listings begin after a given entry there, so a long log slows no commit down."""
_MOST_REMOVED = 10_000
"""Maximum entries that one call removes; on an object store each costs a request."""
_ATTEMPTS = 5


def set_log_properties(table: StoredTable, declared: Table) -> None:
    """Set the log properties of a table's declaration, if an older release created it without them."""

    def change() -> None:
        table.refresh()
        found = table.properties
        missing = {name: value for name, value in declared.log_properties.items() if found.get(name) != value}
        if missing:
            table.set_properties(missing)
            table.refresh()

    committed(change, _ATTEMPTS)


def trim_log(settings: Settings, name: str) -> int:
    """Remove the entries before the newest checkpoint with `KEPT_ENTRIES` newer commits; return how many.

    On an object store the number is `KEPT_ON_STORES`.

    Raises:
        OSError: the log cannot be listed, or an entry cannot be removed.
    """
    kept = KEPT_ENTRIES if local_path(settings.tables) is not None else KEPT_ON_STORES
    return log_of(settings, name).trim(kept, _MOST_REMOVED)
