"""How the broker measures and how long it makes a client wait: sample rings, token buckets, doubles and casts.

In reading order: apis, broker_version, sampled_rate, broker_config, combining, throttle_time, connection_rate,
points, muted_seconds, simple_rate, token_bucket, max_min_fair, worked_example.
"""
