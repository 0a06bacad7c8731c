"""API keys."""

from alembic import op
from sqlalchemy import Column, Double, LargeBinary, PrimaryKeyConstraint, Text

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "api_keys",
        Column("key_id", _TEXT, nullable=False),
        Column("tenant", _TEXT, nullable=False),
        Column("user_id", _TEXT, nullable=False),
        Column("secret_hash", _TEXT, nullable=False),
        Column("permissions", LargeBinary, nullable=False),
        Column("limits", LargeBinary, nullable=False),
        Column("created_at", Double, nullable=False),
        Column("expires_at", Double),
        Column("revoked_at", Double),
        Column("last_used_at", Double),
        PrimaryKeyConstraint("key_id"),
    )
    op.create_index("api_keys_tenant", "api_keys", ["tenant", "created_at", "key_id"])
