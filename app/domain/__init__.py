"""What things are: pure values and tables."""
