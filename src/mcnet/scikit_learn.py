"""Calibration inside scikit-learn: any binary classifier with calibrated probabilities."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.utils import Bunch, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d, has_fit_parameter, indexable, validate_data

from mcnet._shared.arrays import FloatArray, ScoreType
from mcnet._shared.messages import first_line
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.methods import calibrator
from mcnet.errors import InputError, McnetError, NotSupportedError
from mcnet.rows.columns import check_lengths, weights_column
from mcnet.rows.fields import derivation, source_column

# Columns of the X that scikit-learn passes around: tables, arrays and sparse matrices.


def is_table_of_features(X: Any) -> bool:
    """Tell whether X is a table with named columns, not an array."""
    return hasattr(X, "columns") and hasattr(X, "drop")


def feature_column(X: Any, name: Any) -> Any:
    """Return one column of X, by its name or, in an array, by its number."""
    if is_table_of_features(X):
        if name not in _names(X):
            raise InputError(f"X has no column {name!r} to be a field; it has {', '.join(map(str, _names(X)))}")
        return X[name]
    if isinstance(name, bool) or not isinstance(name, int | np.integer):
        raise InputError(f"field is {name!r}, but X is not a table: give the number of the column")
    if not -X.shape[1] <= name < X.shape[1]:
        raise InputError(f"X has no column {name} to be a field; it has {X.shape[1]} columns")
    return _sparse_columns(X, [name]).toarray().ravel() if issparse(X) else X[:, name]


def without_columns(X: Any, names: list[Any]) -> Any:
    """Return X without some of its columns."""
    if is_table_of_features(X):
        is_pandas = type(X).__module__.partition(".")[0] == "pandas"
        return X.drop(columns=names) if is_pandas else X.drop(names)
    kept = np.setdiff1d(np.arange(X.shape[1]), np.array(names) % X.shape[1])
    if issparse(X):
        return _sparse_columns(X, kept).tocsr()
    rest = X[:, kept]
    return rest if rest.dtype != object else _numbers(rest)


def columns_of_strings(X: Any, *, without: Sequence[Any]) -> list[Any]:
    """Return the columns of X, by name or number, that are not numbers; some columns are not looked at."""
    if issparse(X):
        return []
    if is_table_of_features(X):
        others = [name for name in _names(X) if name not in without]
    else:
        others = np.setdiff1d(np.arange(X.shape[1]), np.array(without) % X.shape[1]).tolist()
    return [name for name in others if _numbers(np.asarray(feature_column(X, name))).dtype.kind in "OUS"]


def _names(X: Any) -> list[Any]:
    """Return the names of the columns of a table; those of pandas may be numbers."""
    return list(X.column_names if hasattr(X, "column_names") else X.columns)


def _sparse_columns(X: Any, columns: Any) -> Any:
    return X.tocsc()[:, columns]


def _numbers(rest: NDArray[Any]) -> NDArray[Any]:
    """Return the remaining columns of a mixed array as numbers, if they are numbers."""
    try:
        return rest.astype(np.float64)
    except (TypeError, ValueError):
        return rest


# A scikit-learn classifier with calibrated probabilities: any binary classifier, any method, any field of X.


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Wrap a binary classifier so that `predict_proba` gives calibrated probabilities.

    The calibrator is fitted on scores of rows that the classifier has not seen. With `cv` folds, each fold is scored by
    a classifier fitted on the other folds, and the classifier is then fitted on all rows. With cv="prefit" the
    classifier is fitted already, and the rows given to `fit` must not have trained it.

    Parameters
    ----------
    estimator : the classifier, with predict_proba or decision_function; logistic regression by default.
    method : the name of a method, or a calibrator.
    field : the column, or columns, of X that are fields: names for a table (pandas, Polars, Arrow),
        numbers for an array.
        A method that does not use fields is fitted without them, so that a search over methods may mix both kinds.
    cv : a number of folds (fewer if the rarer class has fewer rows), a splitter, or "prefit".
    keep_field : whether the classifier sees the field columns, too. Set it to False for a classifier that cannot use
        them, for example because they are text.

    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(500, random_state=0)
    >>> model = CalibratedClassifier(method="platt").fit(X, y)
    >>> model.predict_proba(X[:3]).shape
    (3, 2)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        method: str | Calibrator = "mcnet-bayes",
        field: Any = None,
        cv: Any = 5,
        keep_field: bool = True,
    ) -> None:
        """Store the parameters; `fit` checks them."""
        self.estimator = estimator
        self.method = method
        self.field = field
        self.cv = cv
        self.keep_field = keep_field

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Fit the classifier and its calibrator.

        Parameters
        ----------
        X : the features, with the field columns among them.
        y : the labels of two classes.
        sample_weight : the weights of the rows, for both fits.
        fit_params : other metadata for the classifier's fit or for the splitter, by scikit-learn's metadata routing.

        Returns
        -------
        self : the fitted classifier.
        """
        X, y = indexable(X, y)
        X = self._checked(X, reset=True)
        y = column_or_1d(y, warn=True)
        positive = self._labels(y)
        weight = None if sample_weight is None else weights_column(np.asarray(sample_weight), name="sample_weight")
        check_lengths(y=y, sample_weight=weight)
        base = self._base()
        routed = self._routed(base, weight, fit_params)
        field = self._field(X)
        features = self._features(X)
        chosen: Calibrator = clone(self.method) if isinstance(self.method, Calibrator) else calibrator(self.method)
        with self._advice_on_field(X):
            scores, score_type = self._fit_classifier(base, features, y, positive, routed)
        used = field if chosen.field_use != "none" else None
        self.calibrator_ = chosen.fit(scores, positive, field=used, weight=weight, score_type=score_type)
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the calibrated probabilities of the two classes, one row per row of X.

        Parameters
        ----------
        X : the features, as in `fit`.

        Returns
        -------
        array : two columns, the probabilities of the first and of the second class.
        """
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        with self._advice_on_field(X):
            scores, score_type = _scores(self.estimator_, self._features(X))
        field = self._field(X) if self.calibrator_.model_.fields else None
        p = self.calibrator_.predict(scores, field, score_type=score_type)
        return np.column_stack([1.0 - p, p])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the more probable class of each row.

        Parameters
        ----------
        X : the features, as in `fit`.

        Returns
        -------
        array : one class per row.
        """
        likely = self.predict_proba(X)[:, 1] > 0.5
        predicted: NDArray[Any] = self.classes_[likely.astype(np.intp)]
        return predicted

    def get_metadata_routing(self) -> MetadataRouter:
        """Return which part asks for which metadata."""
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=self._base(), method_mapping=MethodMapping().add(caller="fit", callee="fit"))
        if not isinstance(self.cv, str):
            mapping = MethodMapping().add(caller="fit", callee="split")
            router.add(splitter=check_cv(self.cv, classifier=True), method_mapping=mapping)
        return router

    def __sklearn_tags__(self) -> Any:
        """Return the capabilities: two classes, and otherwise those of the wrapped classifier."""
        tags = super().__sklearn_tags__()
        inner = get_tags(LogisticRegression() if self.estimator is None else self.estimator)
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        return tags

    # -- the pieces of fit ----------------------------------------------------------------------------------------

    def _base(self) -> Any:
        """Return the classifier to fit: a copy of the one given, or that very one when it is fitted already."""
        if self.estimator is None:
            return LogisticRegression()
        return self.estimator if isinstance(self.cv, str) else clone(self.estimator)

    def _labels(self, y: Any) -> FloatArray:
        """Set the classes, and return 1 for the rows of the second and 0 for those of the first."""
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) > 2:
            raise InputError(f"Only binary classification is supported. The type of the target is {type_of_target(y)}.")
        if len(self.classes_) < 2:
            raise InputError(f"y has one class only, {self.classes_[0]!r}; rows of two classes are needed")
        return codes.astype(np.float64)

    def _routed(self, base: Any, weight: Any, fit_params: dict[str, Any]) -> Any:
        if get_config()["enable_metadata_routing"]:
            return process_routing(self, "fit", sample_weight=weight, **fit_params)
        if fit_params:
            raise InputError(
                f"fit was given {', '.join(fit_params)}; sklearn.set_config(enable_metadata_routing=True) routes it"
            )
        given = {}
        if weight is not None and not isinstance(self.cv, str):
            if not has_fit_parameter(base, "sample_weight"):
                raise NotSupportedError(
                    f"{type(base).__name__} does not take sample_weight; leave it out, or choose another classifier"
                )
            given = {"sample_weight": weight}
        return Bunch(estimator=Bunch(fit=given), splitter=Bunch(split={}))

    def _fit_classifier(
        self, base: Any, features: Any, y: Any, positive: FloatArray, routed: Any
    ) -> tuple[FloatArray, ScoreType]:
        """Set `estimator_`, and return scores of the rows by a classifier that has not seen them."""
        if isinstance(self.cv, str):
            if self.cv != "prefit":
                raise InputError(f"cv is {self.cv!r}; it must be a number of folds, a splitter or 'prefit'")
            check_is_fitted(base)
            self.estimator_ = base
            return _scores(base, features)
        splitter = check_cv(self._folds(positive), positive, classifier=True)
        response = "predict_proba" if hasattr(base, "predict_proba") else "decision_function"
        indices = list(splitter.split(features, positive, **routed.splitter.split))
        held_back = cross_val_predict(base, features, y, cv=indices, method=response, params=routed.estimator.fit)
        self.estimator_ = base.fit(features, y, **routed.estimator.fit)
        return _score_column(held_back, response)

    @contextmanager
    def _advice_on_field(self, X: Any) -> Iterator[None]:
        """Say with an error of the classifier what may be its cause: columns of strings, or missing field columns."""
        try:
            yield
        except McnetError:
            raise
        except (ValueError, TypeError, KeyError) as error:
            fields = self._field_names()
            if not fields:
                raise
            names = ", ".join(map(repr, fields))
            classifier = type(self._base()).__name__
            problem = first_line(error).rstrip(".")
            encode = "for the classifier (in a Pipeline with a ColumnTransformer)"
            advice = (
                f"{classifier} sees the field {names} like every other column of X: pass keep_field=False to leave it "
                f"to the calibrator, or encode it {encode}"
                if self.keep_field
                else f"keep_field=False takes the field {names} away from the classifier"
            )
            strings = ", ".join(map(repr, columns_of_strings(X, without=fields)))
            if strings and "convert" in problem:
                advice += (
                    f"; it also sees {strings}, which has strings: "
                    if self.keep_field
                    else (f", but not {strings}, which has strings: ")
                )
                advice += f"drop it from X, or encode it {encode}"
            raise InputError(f"{classifier} refused the rows: {problem}; {advice}") from error

    def _folds(self, positive: FloatArray) -> Any:
        if not isinstance(self.cv, int | np.integer):
            return self.cv
        rarer = int(min(positive.sum(), len(positive) - positive.sum()))
        if rarer < 2:
            raise InputError(
                f"the rarer class has {rarer} row; at least 2 of each class are needed to calibrate with cv folds"
            )
        return min(int(self.cv), rarer)

    # -- the columns of X -----------------------------------------------------------------------------------------

    def _checked(self, X: Any, *, reset: bool) -> Any:
        """Return X as a table or an array; its contents are checked by the classifier."""
        if is_table_of_features(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        return validate_data(self, X, reset=reset, accept_sparse=True, dtype=None, ensure_all_finite=False)

    def _field_names(self) -> list[Any]:
        if self.field is None:
            return []
        several = isinstance(self.field, Sequence | np.ndarray) and not isinstance(self.field, str)
        return list(self.field) if several else [self.field]

    def _field(self, X: Any) -> dict[str, Any] | None:
        """Return the field columns by name; the name of a column of an array is its number."""
        columns = {
            str(name): feature_column(X, source_column(name) if isinstance(name, str) else name)
            for name in self._field_names()
        }
        return columns or None

    def _features(self, X: Any) -> Any:
        """Return what the classifier sees of X."""
        # A column that a field is derived from is a feature, too.
        names = [name for name in self._field_names() if not isinstance(name, str) or derivation(name) is None]
        return X if self.keep_field or not names else without_columns(X, names)


def _scores(fitted: Any, features: Any) -> tuple[FloatArray, ScoreType]:
    response = "predict_proba" if hasattr(fitted, "predict_proba") else "decision_function"
    return _score_column(getattr(fitted, response)(features), response)


def _score_column(found: Any, response: str) -> tuple[FloatArray, ScoreType]:
    """Return the score of the second class; a decision function counts as a logit."""
    found = np.asarray(found, dtype=np.float64)
    if response == "decision_function":
        return found, "logit"
    return (found if found.ndim == 1 else found[:, 1]), "probability"
