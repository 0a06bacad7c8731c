"""The HTTP contract, version 1."""
