"""`kquota collect`: the brokers' MBeans into a topic.

In reading order: agents, collector.
"""
