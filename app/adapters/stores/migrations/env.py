"""Run by Alembic: writes the migrations as SQL of the dialect that its configuration names; it never connects."""

from alembic import context

context.configure(
    dialect_name=context.config.attributes["dialect"], literal_binds=True, transactional_ddl=False, dialect_opts={}
)
context.run_migrations()
