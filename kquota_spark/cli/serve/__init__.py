"""`kquota serve`: what commands show, as pages, each for whom it is meant.

In reading order: access, contents, app, command.
"""
