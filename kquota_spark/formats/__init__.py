"""Text to facts: the only parsers there are. Pure Python on msgspec; a refusal comes with its reason.

Rooms, in reading order: quota_files, znodes, exchange, request_log, jmx, messages, text.
"""
