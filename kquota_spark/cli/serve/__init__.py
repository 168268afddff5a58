"""`kquota serve`: the output of commands as web pages, each for its own viewers.

In reading order: access, contents, links, views, app, command.
"""
