"""Plans and their steps."""
