"""The right size of limits against generated tenants with known demand."""
