"""Streaming queries over crashes, restarts, full disks, late lines, releases and many client ids."""
