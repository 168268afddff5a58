"""`kquota ship`: request logs into a topic, at least once and in order.

In reading order: topic, selection, log_text, rotated_files, state, tail, shipper.
"""
