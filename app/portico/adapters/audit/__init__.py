"""Audit log in a file, its verification, and what is recorded outside of the facade."""
