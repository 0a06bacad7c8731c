"""Rules for answers."""
