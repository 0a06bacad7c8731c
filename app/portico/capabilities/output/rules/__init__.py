"""Rules that answers are checked against."""
