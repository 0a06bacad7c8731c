"""Tools that ship with the service."""
