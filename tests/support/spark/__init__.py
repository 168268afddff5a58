"""What tests of Spark queries share: how a hop is run, rows that more than one needs, workers that die."""
