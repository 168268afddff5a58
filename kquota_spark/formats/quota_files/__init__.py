"""Our own format of quota files.

In reading order: quota_file, quota_file_text.
"""
