"""Every table and column, declared once, for Spark, Arrow and people."""
