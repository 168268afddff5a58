"""`kquota top`.

In reading order: columns, lines, detail, feed, keys_help, near, page, keys, screen, command.
"""
