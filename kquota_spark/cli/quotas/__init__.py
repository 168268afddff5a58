"""Commands that read and edit quotas.

In reading order: undo, quota_edits, held_quotas, quota_sides, exchange, alter, describe, diff, drift, review, tree,
context, kfk_selection, kfk.
"""
