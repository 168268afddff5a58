"""Programs that tests drive: shells, terminals, a browser, promtool, an S3 server, kernels."""
