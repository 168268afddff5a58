"""Delta tables without Spark: `parts` writes files where the rows are, `commits` commits them once, in the driver.

`places` builds the paths of tables and checkpoints, and `storage` opens them. `quota_rows` separates the rows of
sources from rules. `failures` turns errors of Delta into ours.

In reading order: failures, places, storage, parts, commits, files, quota_rows, reading, rows, rules_tables, creation,
following.
"""
