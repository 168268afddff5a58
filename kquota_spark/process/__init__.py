"""The edge to the process itself: `clock` reads the time, `notices` prints to the terminal what the process does."""
