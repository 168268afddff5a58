"""The law: Kafka's client-quota arithmetic. Standard library only; no clock, no I/O, time is an argument in ms.

The same code runs on Spark's workers, in the offline commands and as the oracle of the tests.

Rooms, in reading order: quotas, compare, measure, replay, govern, simulation.
"""
