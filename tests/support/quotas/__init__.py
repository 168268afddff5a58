"""Quotas of callbacks, files and clusters that stand in for a real one, with the contract that both keep."""
