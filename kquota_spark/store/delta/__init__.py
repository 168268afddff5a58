"""All that depends on Delta: a table's snapshots, writes, commits, errors, file systems, and its log as files.

Only these files import deltalake. Another format of tables replaces them.

In reading order: errors, file_systems, durable, files, log, table.
"""
