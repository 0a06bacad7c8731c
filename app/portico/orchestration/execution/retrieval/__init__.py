"""Retrieval: searches of the memory as effects, and the sources that an answer has read."""
