"""Our own file of quotas.

In reading order: quota_file, quota_file_text.
"""
