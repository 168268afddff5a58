"""What tests share: fixtures, contracts, recorded logs, servers and programs that stand in for others."""
