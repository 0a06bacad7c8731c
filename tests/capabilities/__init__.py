"""What we can do, tested."""
