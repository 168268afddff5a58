"""What tests of the worker side of the pipeline share: no Spark."""
