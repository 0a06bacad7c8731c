"""JSON Schemas that answers are checked against."""
