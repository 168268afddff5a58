"""Delta tables without Spark: `parts` writes files where the rows are, `commits` commits them once, in the driver.

`delta` is the only folder that imports deltalake. `storage` builds the paths of tables and checkpoints, and opens them.
`quota_rows` separates the rows of sources from rules. `table_log` keeps the logs short. `packing` merges small files.
`dated_files` finds out whether a date still has the rows that it had.

In reading order: storage, parts, table_log, commits, dated_files, packing, files, quota_rows, reading, rows,
rules_tables, creation, following.
"""
