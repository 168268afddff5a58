"""Which cluster, entities and quotas a command is about.

In reading order: cluster_choice, entity_options, quota_source.
"""
