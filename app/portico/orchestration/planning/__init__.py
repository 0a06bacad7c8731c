"""Planning: makes plans and decides which may run."""
