"""What an embedded cluster needs before it starts: Java and jars.

In reading order: ivy, java, sums, jars, spark.
"""
