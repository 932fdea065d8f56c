"""venn-abers: the inductive Venn–Abers predictor on given scores."""

import numpy as np
from protocol import Method, main
from venn_abers import VennAbers


class Abers(Method):
    """Venn–Abers; a field is not used."""

    def rows(self, columns):
        """Return both classes' scores, and the labels."""
        return np.column_stack([1.0 - columns.score, columns.score]), columns.label

    def fit(self, rows):
        """Fit on rows."""
        self.model = VennAbers()
        self.model.fit(*rows)

    def predict(self, rows):
        """Return the probability of every row."""
        return np.asarray(self.model.predict_proba(rows[0])[0])[:, 1]


if __name__ == "__main__":
    main({"inductive": Abers}, ["venn-abers", "numpy"])
