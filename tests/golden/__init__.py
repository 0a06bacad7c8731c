"""What earlier versions left, and what this one makes of it."""
