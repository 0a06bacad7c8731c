"""Brings a database's schema up to date.

Alembic writes the SQL and the database's own connection runs it, in one transaction and under its lock: so there is
one path for both, and no second driver. It is loaded only when there is something to do. A revision that we do not
know is of a later version, whose expanded schema this one can work with.
"""

from io import StringIO
from pathlib import Path
from typing import Final

from app.adapters.stores.database import Backend

HEAD: Final = "0002"
"""The revision this version works with."""
CURRENT: Final = "SELECT version_num FROM alembic_version"
_SCRIPTS = Path(__file__).parent / "migrations"


def upgrade(backend: Backend, current: str | None) -> str:
    """The SQL that leads there from the current revision, None for an empty database; empty when there is none."""
    if current == HEAD:
        return ""
    # Eleven megabytes that nobody needs whose schema is up to date.
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415 - see above
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see above

    written = StringIO()
    config = Config(output_buffer=written, attributes={"dialect": backend})
    config.set_main_option("script_location", str(_SCRIPTS))
    known = {revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        return ""
    command.upgrade(config, f"{current or 'base'}:{HEAD}", sql=True)
    return written.getvalue()
