"""Stored memory: documents, their chunks and vectors, and the index of words."""
