"""What makes plans, and says which may run."""
