"""The `kquota` command: one file per command group; no command here imports Spark."""
