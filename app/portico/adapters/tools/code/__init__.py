"""Code that calls tools: an interpreter without system calls of its own, in a box."""
