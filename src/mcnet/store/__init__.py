"""The store: everything that lives between runs, in SQLite or PostgreSQL.

- `store`: `Store`. `database`: transactions, locks and errors. `schema`: the tables; `migrations`: how they changed.
- `journal`: `Journal`, rows by period and source. `entries`: what it is made of, and what is refused as implausible.
  `additions`: which rows are new; feedback. `compaction`: fewer sketches. `arrival`: positives that arrive late.
- `versions`: `Registry`, the versions of a model, the pointer to the one that is served, and holds.
- `state`: runs, checkpoints, monitor, suspect marks.
- `import_folders`: journals and registries of earlier versions of mcnet.
"""

import re
from os import PathLike
from pathlib import Path
from typing import Any

DATABASE_URL = re.compile(r"(postgres(ql)?|mysql|mariadb|mssql|oracle|redshift|sqlite)(\+\w+)?:/", re.IGNORECASE)
"""What the address of a database begins with, also of one that cannot be a store: it may have a password."""

_FOLDERS = {"journal.json": "a journal", "registry.json": "a registry"}
"""The files by which folders of mcnet 0.1 are known."""


def is_store(address: Any) -> bool:
    """Tell whether something is the address of a store, or a folder of mcnet 0.1, which is refused with advice."""
    if not isinstance(address, str | PathLike):
        return False
    if DATABASE_URL.match(str(address)):
        return True
    try:
        if old_folder(Path(address)):
            return True
        with Path(address).open("rb") as file:
            return file.read(16) == b"SQLite format 3\x00"
    except (OSError, ValueError):
        return False


def old_folder(path: Path) -> str:
    """Return what a folder of mcnet 0.1 is, "a journal" or "a registry"; empty if it is none."""
    return next((kind for file, kind in _FOLDERS.items() if (path / file).is_file()), "")
