"""Delta tables without Spark: `parts` writes files where the rows are, `commits` commits them once, in the driver.

`storage` builds the paths of tables and checkpoints, opens them, and turns errors of Delta into ours. `quota_rows`
separates the rows of sources from rules. `durable` flushes written files to a local disk. `table_log` keeps the logs
short. `packing` merges small files.

In reading order: google, storage, durable, parts, table_log, commits, packing, files, quota_rows, reading, rows,
rules_tables, creation, following.
"""
