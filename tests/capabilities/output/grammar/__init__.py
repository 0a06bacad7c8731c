"""Grammar."""
