"""net:cal: logistic and beta calibration and histogram binning."""

import torch
from netcal.binning import HistogramBinning
from netcal.scaling import BetaCalibration, LogisticCalibration
from protocol import Method, main

torch.set_num_threads(1)


class Plain(Method):
    """One of net:cal's calibrators; a field is not used."""

    def __init__(self, make):
        """Take what makes the calibrator."""
        self.make = make

    def fit(self, rows):
        """Fit on rows."""
        self.model = self.make()
        self.model.fit(rows.score, rows.label)

    def predict(self, rows):
        """Return the probability of every row."""
        return self.model.transform(rows.score).reshape(-1)


if __name__ == "__main__":
    main(
        {
            "logistic": lambda: Plain(lambda: LogisticCalibration(method="mle")),
            "beta": lambda: Plain(lambda: BetaCalibration(method="mle")),
            "histogram": lambda: Plain(lambda: HistogramBinning()),
        },
        ["netcal", "torch", "numpy"],
    )
