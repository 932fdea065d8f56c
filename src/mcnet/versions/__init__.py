"""Versions of a model: the registry with its pointer to the current one, and the difference between two models.

- `registry`: a folder of immutable versions. `difference`: where two models differ, and by how much.
"""
