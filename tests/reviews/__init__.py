"""Figures of `kquota review`: drawn encodings of equal quotas, and a week of a thousand clients.

`python -m tests.reviews` prints them; `KQUOTA_SEED=n` draws others.
"""
