"""The store: everything that lives between runs, in SQLite or PostgreSQL.

- `store`: `Store`. `settings`: `HeadSettings`. `database`: transactions, locks and errors. `schema`: the tables.
- `journal`: `Journal`, rows by period and source. `entries`: what it is made of, and what is refused as implausible.
  `additions`: which rows are new, and fewer sketches of old ones. `feedback`, `files`: what adds.
  `arrival`: positives that arrive late.
- `versions`: `Registry`, the versions of a model, the pointer to the one that is served, and holds.
- `state`: runs, what was served and told, checkpoints, monitor, status.
"""
