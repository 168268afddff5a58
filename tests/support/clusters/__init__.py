"""What tests on real servers share: the servers themselves, clients, quotas at their source, waiting."""
