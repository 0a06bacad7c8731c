"""Entry points, from outside."""
