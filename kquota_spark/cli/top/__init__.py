"""`kquota top`.

In reading order: lines, feed, near, page, keys, screen, command.
"""
