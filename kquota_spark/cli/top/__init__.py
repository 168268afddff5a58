"""`kquota top`.

In reading order: age, lines, feed, details, page, keys, screen, command.
"""
