"""Torture: replicas are killed around every commit and effect, and others recover their executions."""
