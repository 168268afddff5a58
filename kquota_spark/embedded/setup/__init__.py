"""Prerequisites of an embedded cluster: Java and jars.

In reading order: ivy, java, sums, jars, spark.
"""
