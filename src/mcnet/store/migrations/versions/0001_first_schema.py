"""The first schema. A new store is made from `schema.py` as a whole, so nothing is older than this."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Change nothing: every store has at least this schema."""
