"""Our own file of quotas.

In reading order: quota_values, quota_file, quota_file_text.
"""
