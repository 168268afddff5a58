"""Commands that read and edit quotas.

In reading order: quota_edits, held_quotas, kfk_selection, kfk, alter, context, describe, import_quotas, quota_sides,
diff, drift, export_quotas, tree.
"""
