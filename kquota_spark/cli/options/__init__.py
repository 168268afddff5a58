"""Options that commands share, and what listings say around their rows.

In reading order: options, listing.
"""
