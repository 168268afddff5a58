"""The `kquota` command; no command here imports Spark.

The folders `text` and `chosen` are shared. Each of the other folders contains the commands of one topic.

In reading order: command_groups, exit_codes, settings_file, options, own_options, filters, near_names, question,
answers, completion, door, main.
"""
