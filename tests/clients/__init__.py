"""Client packages, built as they are published and used against a live service."""
