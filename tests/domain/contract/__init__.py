"""Contract."""
