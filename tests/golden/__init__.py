"""Databases and journals that earlier releases wrote, and what this one does with them."""
