"""Run the revisions on the connection that `Database.migrate` gives; Alembic loads this file by its name."""

from alembic import context

from mcnet.store.schema import METADATA, schema_version

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=schema_version.name,
    render_as_batch=True,
)
context.run_migrations()
