"""Versions of a model: the registry with its pointer to the current one, and the difference between two models.

- `registry`: immutable versions, and which one is served. `view` is what can be read of it, `folder` where it lies;
  `store` has the versions on disk, `version` describes one, `pointer` which one is current and who holds it.
- `difference`: where two models differ, and by how much.
"""
