"""The `kquota` command: a room for each heading of its help; no command here imports Spark.

Rooms, in reading order: text, chosen, enforce, resolve, judge, quotas, look, run, top.

In reading order: command_groups, exit_codes, settings_file, options, near_names, question, completion, door, main.
"""
