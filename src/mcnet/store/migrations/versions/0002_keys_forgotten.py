"""A head remembers up to when the keys of its feedback are forgotten, whatever its settings become."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column; keys that were forgotten before are not known, so it begins empty."""
    op.add_column("heads", sa.Column("keys_forgotten", sa.Double))
