"""Compare methods on rows that their fits have not seen, and choose one.

- `select`: the comparison and the choice. `selection`: its result. `text`: the result as a table.
- `candidates`: what is compared when no method is named. `held_back`: folds and their predictions.
- `fit_warnings`: warnings of many fits, each shown once.
- `demo`: every method on a simulated log whose truth is known.
"""
