"""The edges: the only place with Spark sessions, Kafka, ZooKeeper, Delta and the clock."""
