"""`kquota explain` and `kquota resolve`.

In reading order: explanation, bucket_use, command.
"""
