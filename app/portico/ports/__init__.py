"""Ports: interfaces that the core needs from outside."""
