"""The commands that make a release."""
