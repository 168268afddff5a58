"""What other programs make of ours: shells, terminals, kernels, a browser, promtool, an S3 server."""
