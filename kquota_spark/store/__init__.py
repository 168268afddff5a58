"""Delta tables without Spark: `parts` writes files where the rows are, `commits` commits them once, in the driver."""
