"""Revisions of the tables of a store, run by Alembic: a file in `versions` per change since the first schema.

- `env`: how Alembic runs them.
"""
