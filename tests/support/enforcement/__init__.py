"""Worlds in which an enforcer acts, and the contract of its ports."""
