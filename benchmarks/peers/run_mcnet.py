"""mcnet itself, and every other method of its registry, under the same protocol."""

import tempfile
from pathlib import Path

import polars as pl
from protocol import Method, main

import mcnet


class Ours(Method):
    """A method of the registry; fields go to those that take them."""

    def __init__(self, name, **parameters):
        """Take the name in the registry."""
        self.name, self.parameters = name, parameters

    def rows(self, columns):
        """Return the columns, fields as Polars texts."""
        fields = {name: pl.Series(name, text.tolist(), dtype=pl.String) for name, text in columns.fields.items()}
        return columns.score, columns.label, fields

    def one(self, columns):
        """Return plain lists."""
        fields = {name: text.tolist() for name, text in columns.fields.items()}
        return columns.score.tolist(), columns.label, fields

    def given(self, fields):
        """Return the field argument."""
        if not fields or self.model.field_use == "none":
            return {}
        return {"field": next(iter(fields.values())) if len(fields) == 1 else fields}

    def fit(self, rows):
        """Fit on rows."""
        score, label, fields = rows
        self.model = mcnet.calibrator(self.name, **self.parameters)
        self.model.fit(score, label, **self.given(fields))

    def predict(self, rows):
        """Return the probability of every row."""
        score, _, fields = rows
        return self.model.predict(score, **self.given(fields))

    def size(self):
        """Return the bytes of the saved JSON."""
        with tempfile.TemporaryDirectory() as folder:
            self.model.save(Path(folder) / "model.json")
            return (Path(folder) / "model.json").stat().st_size


if __name__ == "__main__":
    known = {name: lambda name=name: Ours(name) for name in mcnet.methods() if name != "mcnet"}
    # The published network; without a field in the columns it is MCNet-None.
    known |= {name: lambda: Ours("mcnet") for name in ("MCNet-Field", "MCNet-None")}
    main(known, ["numpy", "polars", "scikit-learn"])
