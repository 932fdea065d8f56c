"""scikit-learn: isotonic, sigmoid and temperature, and the two recipes people write with it for a field."""

import pickle

import numpy as np
from protocol import Method, main
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder


def logit(score):
    """Return the log-odds of scores."""
    inside = np.clip(score, 1e-7, 1 - 1e-7)
    return np.log(inside) - np.log1p(-inside)


class Isotonic(Method):
    """Plain isotonic regression; a field is not used."""

    def fit(self, rows):
        """Fit on rows."""
        self.model = IsotonicRegression(out_of_bounds="clip").fit(rows.score, rows.label)

    def predict(self, rows):
        """Return the probability of every row."""
        return self.model.predict(rows.score)


class IsotonicPerField(Method):
    """One isotonic regression for each field value; the pooled one for values not seen."""

    needs_field = True

    def fit(self, rows):
        """Fit on rows."""
        (field,) = rows.fields.values()
        self.model = {None: IsotonicRegression(out_of_bounds="clip").fit(rows.score, rows.label)}
        order = np.argsort(field, kind="stable")
        values, starts = np.unique(field[order], return_index=True)
        for value, part in zip(values, np.split(order, starts[1:]), strict=True):
            self.model[value] = IsotonicRegression(out_of_bounds="clip").fit(rows.score[part], rows.label[part])

    def predict(self, rows):
        """Return the probability of every row."""
        (field,) = rows.fields.values()
        p = np.empty(len(field))
        for value in np.unique(field):
            part = field == value
            p[part] = self.model.get(value, self.model[None]).predict(rows.score[part])
        return p


class LogisticField(Method):
    """Logistic regression on the logit of the score and one indicator a field value."""

    needs_field = True

    def design(self, rows):
        """Return the sparse design matrix."""
        marks = self.encoder.transform(np.column_stack(list(rows.fields.values())))
        return sparse.hstack([sparse.csr_matrix(logit(rows.score)[:, None]), marks], format="csr")

    def fit(self, rows):
        """Fit on rows."""
        self.encoder = OneHotEncoder(handle_unknown="ignore").fit(np.column_stack(list(rows.fields.values())))
        self.model = LogisticRegression(max_iter=1000).fit(self.design(rows), rows.label)

    def predict(self, rows):
        """Return the probability of every row."""
        return self.model.predict_proba(self.design(rows))[:, 1]

    def size(self):
        """Return the bytes of the pickled encoder and model."""
        return len(pickle.dumps((self.encoder, self.model)))


class Score(ClassifierMixin, BaseEstimator):
    """A classifier whose decision is the first column it is given."""

    classes_ = np.array([0, 1])

    def fit(self, X, y):
        """Learn nothing."""
        return self

    def __sklearn_is_fitted__(self):
        """There is nothing to fit."""
        return True

    def decision_function(self, X):
        """Return the logit of the score."""
        return np.asarray(X)[:, 0]

    def predict(self, X):
        """Return the likelier class."""
        return (self.decision_function(X) > 0).astype(int)


class Wrapped(Method):
    """CalibratedClassifierCV around scores that are already there."""

    def __init__(self, kind):
        """Take scikit-learn's name of the method."""
        self.kind = kind

    def rows(self, columns):
        """Return the logits as a matrix, and the labels."""
        return logit(columns.score)[:, None], columns.label

    def fit(self, rows):
        """Fit on rows."""
        self.model = CalibratedClassifierCV(FrozenEstimator(Score()), method=self.kind).fit(*rows)

    def predict(self, rows):
        """Return the probability of every row."""
        return self.model.predict_proba(rows[0])[:, 1]


if __name__ == "__main__":
    main(
        {
            "isotonic": Isotonic,
            "isotonic per field": IsotonicPerField,
            "logistic + field": LogisticField,
            "sigmoid": lambda: Wrapped("sigmoid"),
            "temperature": lambda: Wrapped("temperature"),
        },
        ["scikit-learn", "numpy"],
    )
