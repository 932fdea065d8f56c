"""The journal: the past as a folder of sketches, one per period and source.

- `journal`: `Journal`. `entries`: what counts. `storage`: what lies in the folder, read beside writers, compacted.
- `additions`: which rows are new, known, replaced or refused. `arrival`: positives that arrive late.
"""
