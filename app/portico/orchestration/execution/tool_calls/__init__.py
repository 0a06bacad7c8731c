"""Tool calls of an execution: rounds, permissions, and calls of agents."""
