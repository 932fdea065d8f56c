"""Parameters of methods by scikit-learn's conventions, their checks, and warnings about rows of one class.

scikit-learn takes longer to import than most fits take, and all that a calibrator needs of it are its conventions: what
the constructor takes is stored under the same name, `get_params` and `set_params` read and change it, and `clone` makes
an unfitted copy. `sklearn.base.clone`, searches and pipelines take calibrators like estimators of scikit-learn's own.
"""

import copy
import inspect
import math
import re
from numbers import Integral, Real
from typing import Any, Literal, Self, TypeVar

import numpy as np

from mcnet._shared.arrays import ROWS_AT_A_TIME, FloatArray
from mcnet._shared.messages import warn
from mcnet.errors import Advice, InputError
from mcnet.rows.fields import CLOCK
from mcnet.sketch.sketch import Sketch

_Estimator = TypeVar("_Estimator")


class Estimator:
    """An object whose constructor arguments are its parameters, stored untouched under their names."""

    @classmethod
    def _parameter_names(cls) -> list[str]:
        if cls.__init__ is object.__init__:
            return []
        return sorted(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : also those of parameters that are estimators themselves, as `name__parameter`.
        """
        parameters: dict[str, Any] = {}
        for name in self._parameter_names():
            value = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                parameters |= {f"{name}__{inner}": given for inner, given in value.get_params().items()}
            parameters[name] = value
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters, also those of parameters that are estimators (`name__parameter`), and return self.

        Parameters
        ----------
        parameters : the new values by name.

        Returns
        -------
        The estimator itself.
        """
        known = self._parameter_names()
        inner: dict[str, dict[str, Any]] = {}
        for key, value in parameters.items():
            name, _, rest = key.partition("__")
            if name not in known:
                listed = ", ".join(known) or "none"
                raise InputError(f"{type(self).__name__} has no parameter {name!r}; it has {listed}")
            if rest:
                inner.setdefault(name, {})[rest] = value
            else:
                setattr(self, name, value)
        for name, given in inner.items():
            getattr(self, name).set_params(**given)
        return self

    def set_fit_request(self, **requests: bool | str | None) -> Self:
        """Say which arguments of `fit` scikit-learn's metadata routing passes on, as in `field=True`.

        Parameters
        ----------
        requests : True to pass an argument on, False not to, a string if it is given under another name.

        Returns
        -------
        The estimator itself.
        """
        return self._request("fit", requests)

    def set_predict_request(self, **requests: bool | str | None) -> Self:
        """Say which arguments of `predict` scikit-learn's metadata routing passes on.

        Parameters
        ----------
        requests : True to pass an argument on, False not to, a string if it is given under another name.

        Returns
        -------
        The estimator itself.
        """
        return self._request("predict", requests)

    def set_score_request(self, **requests: bool | str | None) -> Self:
        """Say which arguments of `score` scikit-learn's metadata routing passes on.

        Parameters
        ----------
        requests : True to pass an argument on, False not to, a string if it is given under another name.

        Returns
        -------
        The estimator itself.
        """
        return self._request("score", requests)

    def get_metadata_routing(self) -> Any:
        """Return scikit-learn's record of the arguments that its metadata routing passes on."""
        from sklearn.utils.metadata_routing import MetadataRequest

        if not hasattr(self, "_metadata_request"):  # the name under which scikit-learn's clone looks for it
            self._metadata_request = MetadataRequest(owner=type(self).__name__)
            for method in ("fit", "predict", "score"):
                for name in self._routed(method):
                    getattr(self._metadata_request, method).add_request(param=name, alias=None)
        return copy.deepcopy(self._metadata_request)

    def _routed(self, method: str) -> list[str]:
        """Return the arguments of a method that can be routed: all but the scores and the labels."""
        parameters = inspect.signature(getattr(self, method)).parameters.values()
        named = [given.name for given in parameters if given.kind is not inspect.Parameter.VAR_POSITIONAL]
        return named[1 if method == "predict" else 2 :]

    def _request(self, method: str, requests: dict[str, bool | str | None]) -> Self:
        known = self._routed(method)
        for name in requests:
            if name not in known:
                raise InputError(
                    f"{method} of {type(self).__name__} has no argument {name!r}; it has {', '.join(known)}"
                )
        routing = self.get_metadata_routing()
        for name, alias in requests.items():
            getattr(routing, method).add_request(param=name, alias=alias)
        self._metadata_request = routing
        return self

    def __repr__(self) -> str:
        """Return the constructor call, with the parameters that are not at their defaults."""
        defaults = inspect.signature(type(self)).parameters
        given = self.get_params(deep=False)
        changed = [f"{name}={value!r}" for name, value in given.items() if repr(value) != repr(defaults[name].default)]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn, which is imported by whoever asks, what kind of estimator this is."""
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=True))


def clone(estimator: _Estimator) -> _Estimator:
    """Return an unfitted copy of an estimator, with copies of its parameters."""
    parameters = {
        name: clone(value) if hasattr(value, "get_params") and not isinstance(value, type) else copy.deepcopy(value)
        for name, value in estimator.get_params(deep=False).items()  # type: ignore[attr-defined]
    }
    return type(estimator)(**parameters)


# Checks of parameters that several methods share: counts and regularisers.


def check_count(name: str, value: Any, *others: str | None) -> None:
    """Raise unless a parameter is a whole number above 0, or one of the others that it can be."""
    if isinstance(value, str | None) and value in others:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        known = " or ".join([*map(repr, others), "a whole number above 0"])
        raise InputError(f"{name} is {value!r}; it must be {known}")


def check_penalties(alpha_balance: Any, balance: Any) -> None:
    """Raise unless the weight of the balance term is a number ≥ 0 and its kind is known."""
    if not (isinstance(alpha_balance, Real) and 0.0 <= float(alpha_balance) < math.inf):
        raise InputError(f"alpha_balance is {alpha_balance!r}; it must be a number ≥ 0")
    if balance not in ("global", "field"):
        raise InputError(f"balance is {balance!r}; it must be 'global' or 'field'")


def balanced_field_use(alpha_balance: Any, field_aware: bool) -> Literal["none", "optional", "required"]:
    """Return whether a field is of use to the curves, needed by the balance term, or of no use."""
    if isinstance(alpha_balance, Real) and float(alpha_balance) > 0.0:  # it has not been checked yet
        return "required"
    return "optional" if field_aware else "none"


def check_beta_order(beta_order: Any) -> None:
    """Raise unless the weight of the order regulariser is None or a number ≥ 0."""
    if beta_order is not None and not (isinstance(beta_order, Real) and 0.0 <= float(beta_order) < math.inf):
        raise InputError(f"beta_order is {beta_order!r}; it must be None or a number ≥ 0")


# Warnings about fields of timestamps, and about field values, or ranges of scores, that have one class only.

_IS_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d").match
_TIMESTAMPS_WORTH_A_WARNING = 100
"""Of fewer timestamps, such as the hours of a few days, each may well have a curve of its own."""
_MOST_VALUES_TO_NAME = 100
_FEWEST_EXPECTED = 10.0
"""Positives (or negatives) that the scores must expect in a range without any, before a warning is given."""


def warn_of_timestamps(sketch: Sketch) -> None:
    """Warn of fields whose values are timestamps, which do not come again."""
    for name, values in zip(sketch.contexts.names, sketch.contexts.values, strict=True):
        # Midnight is written as its day alone.
        if len(values) > _TIMESTAMPS_WORTH_A_WARNING and any(map(_IS_TIMESTAMP, filter(None, values[:3]))):
            warn(
                f"the field {name!r} has {len(values):,} timestamps, and those to come are unseen values; a field can "
                f"be {', '.join(f'{name}:{kind}' for kind in CLOCK)}",
                Advice(
                    "if it is the time of the rows, leave it out of the fields, or fit a journal of periods",
                    shell="if it is the time of the rows, pass it as --time instead",
                ),
            )


def warn_of_gaps(method: str, sketch: Sketch) -> None:
    """Warn of field values and of low or high ranges of scores that have one class only."""
    _warn_of_values(method, sketch)
    weight, positives, expected = _sums_by_key(sketch)
    score = expected / weight
    below = int(np.argmax(positives > 0.0))
    if expected[:below].sum() >= _FEWEST_EXPECTED:
        warn(f"{method}: no positives below score {score[below]:.3g} ({weight[:below].sum():,.0f} rows)")
    above = len(weight) - int(np.argmax((weight - positives)[::-1] > 0.0))
    if (weight - expected)[above:].sum() >= _FEWEST_EXPECTED:
        warn(f"{method}: no negatives above score {score[above - 1]:.3g} ({weight[above:].sum():,.0f} rows)")


def _sums_by_key(sketch: Sketch) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return weight, positives and summed scores of the cells of each key, in order of the keys."""
    key = sketch.cells.key
    lowest = int(key.min())
    width = int(key.max()) - lowest + 1
    if width > len(key):  # the keys of a sketch of exact scores
        keys, key = np.unique(key, return_inverse=True)
        lowest, width = 0, len(keys)
    sums = np.zeros((3, width))
    for start in range(0, len(key), ROWS_AT_A_TIME):
        cells = slice(start, start + ROWS_AT_A_TIME)
        weight, index = sketch.weight[cells], key[cells] - lowest
        for total, column in zip(sums, (weight, sketch.positives[cells], weight * sketch.score[cells]), strict=True):
            total += np.bincount(index, column, width)
    weight, positives, expected = sums[:, sums[0] > 0.0]
    return weight, positives, expected


def _warn_of_values(method: str, sketch: Sketch) -> None:
    weight, positives = sketch.context_sums.T
    if not sketch.contexts.names or len(weight) > _MOST_VALUES_TO_NAME:
        return  # a long tail has such values by nature
    one_sided = np.flatnonzero((weight > 0.0) & ((positives <= 0.0) | (positives >= weight)))
    if len(one_sided):
        kind = "positives" if positives[one_sided[0]] <= 0.0 else "negatives"
        name = sketch.contexts.labels()[one_sided[0]]
        more = f" (and {len(one_sided) - 1} more of one class only)" if len(one_sided) > 1 else ""
        warn(f"{method}: {name} has no {kind}{more}; its curve stays near the common one")
