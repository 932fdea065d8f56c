"""LightGBM: boosted trees of the score's logit and the fields, rising with the score."""

import lightgbm
import numpy as np
from protocol import Method, main

# The best of five settings on a part of the rows of a fit.
SETTINGS = {
    "objective": "binary",
    "learning_rate": 0.05,
    "num_leaves": 31,
    "min_data_in_leaf": 200,
    "cat_smooth": 100,
    "cat_l2": 50,
    "num_threads": 1,
    "verbosity": -1,
    "seed": 0,
}
MOST_TREES = 1_000
PATIENCE = 30
HELD_BACK = 5
"""One row of so many decides when to stop."""


class Trees(Method):
    """Trees with the score and the fields as features.

    They do not start from the scores: a sum of rising trees could not make these less steep.
    """

    def design(self, rows):
        """Return the features; values that were not seen are missing."""
        inside = np.clip(rows.score, 1e-7, 1 - 1e-7)
        logits = np.log(inside) - np.log1p(-inside)
        codes = [[values.get(text, -1) for text in rows.fields[name].tolist()] for name, values in self.values.items()]
        return np.column_stack([logits, *codes]).astype(np.float64)

    def fit(self, rows):
        """Fit on rows."""
        self.values = {
            name: {text: code for code, text in enumerate(np.unique(column).tolist())}
            for name, column in rows.fields.items()
        }
        features = self.design(rows)
        kept = np.arange(len(features)) % HELD_BACK > 0
        given = {"categorical_feature": list(range(1, features.shape[1])), "free_raw_data": False}
        learnt, judged = (lightgbm.Dataset(features[part], rows.label[part], **given) for part in (kept, ~kept))
        constraints = [1] + [0] * (features.shape[1] - 1)
        self.model = lightgbm.train(
            SETTINGS | {"monotone_constraints": constraints},
            learnt,
            MOST_TREES,
            valid_sets=[judged],
            callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
        )

    def predict(self, rows):
        """Return the probability of every row."""
        return self.model.predict(self.design(rows))

    def size(self):
        """Return the bytes of its own text."""
        return len(self.model.model_to_string())


if __name__ == "__main__":
    main({"monotone": Trees}, ["lightgbm", "numpy"])
