"""The history of the schema, for Alembic: first expand, then move the code, and contract a version later."""
