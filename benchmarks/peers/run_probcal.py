"""probcal: its calibrator with shrunken offsets a segment, over a beta map and over a spline, and one offset alone."""

from probcal import BetaCalibrator, LogitOffset, SegmentedCalibrator, SplineCalibrator
from protocol import Method, main


class Segmented(Method):
    """A shared map and an offset for each field value; the shared map alone when there is no field."""

    def __init__(self, base):
        """Take the class of the shared map."""
        self.base = base

    def fit(self, rows):
        """Fit on rows."""
        if rows.fields:
            (segments,) = rows.fields.values()
            self.model = SegmentedCalibrator(self.base()).fit(rows.score, rows.label, segments=segments)
        else:
            self.model = self.base().fit(rows.score, rows.label)

    def predict(self, rows):
        """Return the probability of every row."""
        if not rows.fields:
            return self.model.predict_proba(rows.score)
        (segments,) = rows.fields.values()
        return self.model.predict_proba(rows.score, segments=segments)


class Offset(Method):
    """One offset in logits, under which the mean of the scores is that of the labels; a field is not used."""

    def fit(self, rows):
        """Fit on rows."""
        self.model = LogitOffset(target_mean=float(rows.label.mean())).fit(rows.score)

    def predict(self, rows):
        """Return the probability of every row."""
        return self.model.transform(rows.score)


if __name__ == "__main__":
    main(
        {
            "segmented beta": lambda: Segmented(BetaCalibrator),
            "segmented spline": lambda: Segmented(SplineCalibrator),
            "logit offset": Offset,
        },
        ["probcal", "numpy"],
    )
