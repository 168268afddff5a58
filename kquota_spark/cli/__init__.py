"""The `kquota` command: a room for each heading of its help; no command here imports Spark.

Rooms, in reading order: text, options, chosen, enforce, resolve, judge, quotas, look, run, top.

In reading order: command_groups, completion, door, main.
"""
