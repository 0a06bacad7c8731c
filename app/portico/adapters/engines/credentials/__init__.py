"""Credentials of clouds, which expire: where they are found, and how they authenticate requests."""
