"""MCGrad, free and with its monotone option, and its adjustments by one number."""

import logging

import pandas as pd
from mcgrad.methods import AdditiveAdjustment, MCGrad, MultiplicativeAdjustment, SegmentwiseCalibrator
from protocol import Method, main

logging.disable(logging.WARNING)


class Boosted(Method):
    """MCGrad with the score's logit and the fields as features, on one thread."""

    def __init__(self, monotone):
        """Take whether the trees must rise with the score."""
        self.monotone = monotone

    def rows(self, columns):
        """Return a pandas table; without a field, one that is the same everywhere."""
        self.names = list(columns.fields) or ["none"]
        fields = columns.fields or {"none": ["all"] * len(columns.score)}
        return pd.DataFrame({"score": columns.score, "label": columns.label, **fields})

    def fit(self, rows):
        """Fit on rows."""
        names = [name for name in rows.columns if name not in ("score", "label")]
        # Quiet, and as many threads as everybody: LightGBM would take all cores.
        self.model = MCGrad(monotone_t=self.monotone, lightgbm_params={"num_threads": 1, "verbosity": -1})
        self.model.fit(rows, "score", "label", categorical_feature_column_names=names)

    def predict(self, rows):
        """Return the probability of every row."""
        names = [name for name in rows.columns if name not in ("score", "label")]
        return self.model.predict(rows, "score", categorical_feature_column_names=names)

    def size(self):
        """Return the bytes of its own JSON."""
        return len(self.model.serialize())


class Adjusted(Boosted):
    """One number that is added or multiplied, for all rows or for each field value."""

    def __init__(self, make):
        """Take what makes the calibrator."""
        self.make = make

    def fit(self, rows):
        """Fit on rows."""
        names = [name for name in rows.columns if name not in ("score", "label")]
        self.model = self.make().fit(rows, "score", "label", categorical_feature_column_names=names)

    size = Method.size


if __name__ == "__main__":
    main(
        {
            "default": lambda: Boosted(None),
            "monotone": lambda: Boosted(True),
            "additive adjustment": lambda: Adjusted(AdditiveAdjustment),
            "multiplicative adjustment": lambda: Adjusted(MultiplicativeAdjustment),
            "multiplicative per field": lambda: Adjusted(lambda: SegmentwiseCalibrator(MultiplicativeAdjustment)),
        },
        ["mcgrad", "lightgbm", "numpy"],
    )
