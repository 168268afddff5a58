"""`kquota rightsize`: the limit that fits each bucket, and how good a default is.

In reading order: command.
"""
