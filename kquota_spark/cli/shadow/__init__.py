"""What other quotas would do, and what an edit did: the commands of shadow quotas and of impact.

In reading order: shadow, impact.
"""
