"""The edge to Kafka: clients, questions, topics of our own, and what its brokers are set to.

In reading order: client_properties, tokens, clients, questions, log_topic_checks, broker_checks, broker_configs,
lease_topic, quota_admin.
"""
