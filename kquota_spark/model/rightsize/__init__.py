"""The limit that fits a bucket: its demand behind throttles, a target with bounds, a forecast, and defaults.

In reading order: demand, target, forecast, defaults.
"""
