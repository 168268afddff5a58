"""Options that choose a cluster, entities and quotas.

In reading order: cluster_choice, entity_options, quota_source.
"""
