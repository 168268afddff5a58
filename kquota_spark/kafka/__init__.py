"""The edge to Kafka: clients, queries, topics of our own, and the settings of its brokers.

In reading order: client_properties, tokens, clients, advised_topic, questions, log_messages, log_topic_checks,
broker_checks, broker_configs, cluster_facts, lease_topic, quota_admin.
"""
