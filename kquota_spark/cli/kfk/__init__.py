"""`kquota kfk`.

In reading order: selection, command.
"""
