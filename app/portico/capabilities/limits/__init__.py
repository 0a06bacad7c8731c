"""Limits of keys and tenants, and the usage that is counted by them."""
