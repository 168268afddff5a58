"""The edges: Spark sessions, clients of Kafka and ZooKeeper, and what is read and written in Delta tables.

`kafka_clients` and `zookeeper_client` are the only modules that make clients. `client_properties` beside them holds
what each library calls the properties of a login.
"""
