"""Replicas that are killed, and what is left then."""
