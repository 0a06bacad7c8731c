"""Domain: pure values and tables."""
