"""`kquota top`.

In reading order: age, lines, feed, near, page, keys, screen, command.
"""
