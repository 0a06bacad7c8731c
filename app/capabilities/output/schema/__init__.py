"""JSON Schemas for answers."""
