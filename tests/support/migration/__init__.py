"""A cluster that migrates from ZooKeeper to KRaft, in the four phases of Kafka's own guide."""
