"""Alembic environment that writes migrations as SQL of the configured dialect, without a connection."""

from alembic import context

context.configure(
    dialect_name=context.config.attributes["dialect"], literal_binds=True, transactional_ddl=False, dialect_opts={}
)
context.run_migrations()
