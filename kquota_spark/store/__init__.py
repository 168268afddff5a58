"""Delta tables without Spark: `parts` writes files where the rows are, `commits` commits them once, in the driver.

`storage` builds the paths of tables and checkpoints, opens them, and turns errors of Delta into ours. `quota_rows`
separates the rows of sources from rules. `durable` has a local disk take what was written. `table_log` keeps the logs
short.

`packing` puts small files together.

In reading order: google, storage, durable, parts, table_log, commits, packing, files, quota_rows, reading, rows,
rules_tables, creation, following.
"""
