"""The store: everything that lives between runs, in SQLite or PostgreSQL.

- `store`: `Store`. `database`: transactions, locks and errors. `schema`: the tables; `migrations`: how they changed.
- `journal`: `Journal`, rows by period and source. `additions`: which rows are new, known or refused; feedback.
- `versions`: `Registry`, the versions of a model and the pointer. `state`: runs, checkpoints, monitor, suspect marks.
- `import_folders`: journals and registries of earlier versions of mcnet.
"""
