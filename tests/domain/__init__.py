"""What things are, tested."""
