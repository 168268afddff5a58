"""The only parsers of the package. Pure Python on msgspec; every refusal comes with its reason.

Rooms, in reading order: quota_files, znodes, exchange, request_log, jmx, messages, text.
"""
