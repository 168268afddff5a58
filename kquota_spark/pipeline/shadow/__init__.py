"""Quotas that are judged beside the enforced ones, in the same pass. It imports no other file of the pipeline.

GOVERN gets the limits from `beside`, and JUDGE keeps the buckets of one shard in `shard`. Nothing here can send a
quota.

In reading order: rules, moved, beside, rings, sampled, tokens, unlike, rows,
shard.
"""
