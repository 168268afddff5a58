"""Commands that read and edit quotas.

In reading order: applied_edits, quota_edits, held_quotas, alter, context, describe, import_quotas, quota_sides,
diff_page, diff, drift, export_quotas, tree.
"""
