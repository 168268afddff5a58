"""Reports and series made from small tables."""
