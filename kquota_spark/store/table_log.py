"""Keeps the log of a table short, so that a commit costs the same however old the table is.

On a local disk each commit of deltalake lists the whole `_delta_log` three times, and each opening of the table once.
That is 2.5 ms per 1,000 entries and commit. So commits of the job do not clean the log (`Table.log_properties`), and
its driver trims the log beside them. It trims by number and not by time, so that neither the trigger nor a clock
matters. `kquota maintain` removes entries older than the retention from the logs of all tables, also of those that no
driver trims.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from kquota_spark.config.roots import local_path
from kquota_spark.config.settings import Settings
from kquota_spark.schema.columns import Table
from kquota_spark.store.storage import committed, file_system, place_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

KEPT_ENTRIES = 500
"""Newest commits that stay in a table's log: 40 minutes at the default trigger. Followers are seconds behind."""
KEPT_ON_STORES = 20_000
"""The same on an object store: a day. Listings begin after a given entry there, so a long log slows no commit down."""
_MOST_REMOVED = 10_000
"""Maximum entries that one call removes; on an object store each costs a request."""
_ENTRY = re.compile(r"(\d{20})\.(json|checkpoint\.parquet)")
_ATTEMPTS = 5


def set_log_properties(table: DeltaTable, declared: Table) -> None:
    """Set the log properties of a table's declaration, if an older release created it without them."""

    def change() -> None:
        table.update_incremental()
        found = table.metadata().configuration
        missing = {name: value for name, value in declared.log_properties.items() if found.get(name) != value}
        if missing:
            table.alter.set_table_properties(missing)
            table.update_incremental()

    committed(change, _ATTEMPTS)


def may_be_older(table: DeltaTable) -> bool:
    """Whether a table may have newer commits than a snapshot of it; on a local disk this does not list the log."""
    root, version = local_path(table.table_uri), table.version()
    if root is None:
        return True
    own, following = (root / "_delta_log" / f"{number:020}.json" for number in (version, version + 1))
    # A log that was trimmed beyond the snapshot has neither: the oldest entries are removed first.
    return following.exists() or not own.exists()


def trim_log(settings: Settings, name: str) -> int:
    """Remove the entries before the newest checkpoint with `KEPT_ENTRIES` newer commits; return how many.

    On an object store the number is `KEPT_ON_STORES`.

    Raises:
        OSError: the log cannot be listed, or an entry cannot be removed.
    """
    from pyarrow import fs

    kept = KEPT_ENTRIES if local_path(settings.tables) is not None else KEPT_ON_STORES
    files, log = file_system(settings, place_of(settings.tables, f"{name}/_delta_log"))
    found = files.get_file_info(fs.FileSelector(log, allow_not_found=True))
    matches = [(info, match) for info in found if (match := _ENTRY.fullmatch(info.base_name))]
    newest = max((int(match[1]) for _, match in matches if match[2] == "json"), default=0)
    whole = [int(match[1]) for _, match in matches if match[2] != "json"]
    first_kept = max((version for version in whole if version <= newest - kept), default=0)
    # Oldest first: a call that is cut off leaves no gap.
    old = sorted(info.path for info, match in matches if int(match[1]) < first_kept)[:_MOST_REMOVED]
    for path in old:
        with suppress(FileNotFoundError):  # another process may clean too
            files.delete_file(path)
    return len(old)
