"""Pages that a running program answers with."""
