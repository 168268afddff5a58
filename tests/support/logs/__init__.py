"""Lines, messages and points of brokers: recorded, written by hand, drawn."""
