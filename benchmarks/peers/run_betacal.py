"""betacal: beta calibration with three parameters."""

from betacal import BetaCalibration
from protocol import Method, main


class Beta(Method):
    """Beta calibration; a field is not used."""

    def fit(self, rows):
        """Fit on rows."""
        self.model = BetaCalibration("abm").fit(rows.score[:, None], rows.label)

    def predict(self, rows):
        """Return the probability of every row."""
        return self.model.predict(rows.score)


if __name__ == "__main__":
    main({"beta": Beta}, ["betacal", "scikit-learn", "numpy"])
