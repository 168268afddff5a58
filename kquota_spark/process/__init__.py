"""The edge to the process itself: `clock` reads the time, `notices` reports to the terminal what the process does.

In reading order: check, clock, extras, notices, graceful_stop, listeners, metrics, no_redirects, polling, processes,
replaced_file, time_limit.
"""
