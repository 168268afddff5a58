"""The `kquota` command: a room for each heading of its help; no command here imports Spark.

Rooms, in reading order: text, chosen, enforce, resolve, judge, quotas, look, run, top.

In reading order: exit_codes, settings_file, options, near_names, question, command_groups, completion, door, main.
"""
