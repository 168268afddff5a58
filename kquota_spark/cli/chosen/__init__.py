"""Which cluster, entities and quotas a command is about.

In reading order: cluster_choice, entity_options, near_names, quota_source.
"""
