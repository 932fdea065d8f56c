"""Versions of a model: the registry with its pointer to the current one, and the difference between two models.

- `registry`: immutable versions, and which one is served. `store` has the versions on disk, `version` what is told of
  one, `pointer` which one is current and whether it is held.
- `difference`: where two models differ, and by how much.
"""
