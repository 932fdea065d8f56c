"""Features of rows, as a network takes them: standardised numbers, and categories as codes into a vocabulary."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray
from mcnet.errors import InputError
from mcnet.rows.columns import as_array, as_floats, check_lengths
from mcnet.rows.fields import field_columns


class EncodedFeatures(NamedTuple):
    """Features ready for a network: numbers `[rows, n]`, and codes of categories `[rows, m]`."""

    numbers: NDArray[np.float32]
    categories: NDArray[np.int64]

    def rows(self, which: NDArray[Any]) -> "EncodedFeatures":
        """Return some of the rows."""
        return EncodedFeatures(self.numbers[which], self.categories[which])


@dataclass(frozen=True)
class NumberColumn:
    """How a column of numbers is encoded: in standard deviations from the mean, within the range that was fitted.

    A missing value counts as the mean; if some were missing in the fit, an indicator beside the number says so.
    """

    name: str
    mean: float
    spread: float
    low: float
    high: float
    indicator: bool

    @staticmethod
    def learn(name: str, values: FloatArray) -> "NumberColumn":
        """Return the encoding of a column."""
        present = values[~np.isnan(values)]
        if len(present) == 0:
            return NumberColumn(name, 0.0, 1.0, 0.0, 0.0, indicator=False)
        spread = float(present.std())
        return NumberColumn(
            name,
            float(present.mean()),
            spread if spread > 0.0 else 1.0,
            float(present.min()),
            float(present.max()),
            indicator=len(present) < len(values),
        )

    def encode(self, values: FloatArray) -> list[FloatArray]:
        """Return the number and, if there is one, its indicator."""
        missing = np.isnan(values)
        number = (np.clip(np.where(missing, self.mean, values), self.low, self.high) - self.mean) / self.spread
        return [number, missing.astype(np.float64)] if self.indicator else [number]


@dataclass(frozen=True)
class CategoryColumn:
    """The vocabulary of a column of categories; what is not in it has the code after the last one."""

    name: str
    values: tuple[str | None, ...]

    def encode(self, values: Any) -> NDArray[np.int64]:
        """Return the code of each row."""
        (column,) = field_columns({self.name: values})
        index = {value: code for code, value in enumerate(self.values)}
        table = np.array([index.get(value, len(index)) for value in column.values], dtype=np.int64)
        return table[column.codes]


@dataclass(frozen=True)
class FeatureEncoding:
    """The columns that a network was trained on; the same ones, by name, must come again.

    >>> encoding = FeatureEncoding.learn({"price": [1.0, None, 3.0], "device": ["phone", "web", "phone"]})
    >>> encoding.encode({"device": ["web", "tv"], "price": [3.0, None]})
    EncodedFeatures(numbers=array([[1., 0.],
           [0., 1.]], dtype=float32), categories=array([[1],
           [2]]))
    """

    numbers: tuple[NumberColumn, ...]
    categories: tuple[CategoryColumn, ...]
    named: bool
    """Whether columns go by their names (a table) or by their positions (an array)."""

    @staticmethod
    def learn(features: Any) -> "FeatureEncoding":
        """Return the encoding of features: a 2-D array of numbers, or a table (pandas, Polars, Arrow, a mapping).

        In a table, columns of numbers are numbers, and columns of text, categories or booleans are categories.
        """
        numbers, categories = [], []
        columns = _columns(features)
        for name, values in columns.items():
            if _is_number(name, values):
                numbers.append(NumberColumn.learn(name, _numbers(name, values)))
            else:
                (column,) = field_columns({name: values})
                categories.append(CategoryColumn(name, column.values))
        return FeatureEncoding(tuple(numbers), tuple(categories), not isinstance(features, np.ndarray))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of known values of each column of categories."""
        return tuple(len(column.values) for column in self.categories)

    def encode(self, features: Any) -> EncodedFeatures:
        """Return features of the same columns, encoded; refuse missing, surplus and unnamed ones."""
        columns = _columns(features)
        self._check(list(columns), named=not isinstance(features, np.ndarray))
        rows = len(next(iter(columns.values())))
        numbers = [part for n in self.numbers for part in n.encode(_numbers(n.name, columns[n.name]))]
        categories = [column.encode(columns[column.name]) for column in self.categories]
        return EncodedFeatures(
            np.column_stack(numbers).astype(np.float32) if numbers else np.zeros((rows, 0), dtype=np.float32),
            np.column_stack(categories) if categories else np.zeros((rows, 0), dtype=np.int64),
        )

    def _check(self, given: list[str], *, named: bool) -> None:
        needed = [number.name for number in self.numbers] + [category.name for category in self.categories]
        if named != self.named:
            kinds = ("an array without names", "a table with named columns")
            raise InputError(f"features are {kinds[named]}, but were {kinds[self.named]} in fit; pass the same kind")
        if set(given) == set(needed):
            return
        if not named:
            raise InputError(f"features have {len(given)} columns, but had {len(needed)} in fit; pass the same columns")
        lacking = [name for name in needed if name not in given]
        surplus = [name for name in given if name not in needed]
        result = [f"lack {', '.join(lacking)}"] if lacking else []
        result += [f"have an unknown {', '.join(surplus)}"] if surplus else []
        raise InputError(f"features {' and '.join(result)}; pass the columns of the fit: {', '.join(needed)}")

    def to_dict(self) -> dict[str, Any]:
        """Return the encoding as plain lists, numbers and text."""
        return asdict(self)

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> "FeatureEncoding":
        """Return the encoding that to_dict described."""
        return FeatureEncoding(
            tuple(NumberColumn(**column) for column in document["numbers"]),
            tuple(CategoryColumn(column["name"], tuple(column["values"])) for column in document["categories"]),
            document["named"],
        )


def _columns(features: Any) -> dict[str, Any]:
    """Return the columns by name (by position, for an array), all of one length."""
    if isinstance(features, np.ndarray):
        if features.ndim != 2:
            raise InputError(f"features have shape {features.shape}; pass a row for each score: [rows, columns]")
        columns = {str(index): features[:, index] for index in range(features.shape[1])}
    elif isinstance(features, Mapping):
        columns = {str(name): values for name, values in features.items()}
    elif hasattr(features, "columns"):
        names = list(features.column_names if hasattr(features, "column_names") else features.columns)
        columns = {str(name): features[name] for name in names}
        if len(columns) < len(names):
            raise InputError(f"two columns of features have one name: {', '.join(map(str, names))}; give each its own")
    else:
        raise InputError(
            f"features are {type(features).__name__}; pass a 2-D NumPy array or a table with named columns"
        )
    if not columns:
        raise InputError("features have no columns; give at least one, or leave auxiliary=True out")
    check_lengths(**{f"feature {name}": values for name, values in columns.items()})
    return columns


def _is_number(name: str, values: Any) -> bool:
    """Tell whether a column holds numbers or categories; refuse what is neither."""
    dtype: Any = getattr(values, "dtype", None)
    if hasattr(dtype, "is_numeric"):  # Polars
        number, category = dtype.is_numeric(), not (dtype.is_temporal() or dtype.is_nested())
    else:
        kind = dtype.kind if hasattr(dtype, "kind") else as_array(values, f"feature {name}").dtype.kind
        if kind == "O" and isinstance(values, list) and not any(isinstance(v, str | bool) for v in values):
            kind = "f"  # a plain list of numbers, some of them None
        number, category = kind in "iuf", kind in "bOUST"
    if not number and not category:
        raise InputError(f"feature {name!r} is of type {dtype}; make it a number (days, seconds) or text")
    return bool(number)


def _numbers(name: str, values: Any) -> FloatArray:
    """Return a column as float64, missing values as NaN."""
    if hasattr(getattr(values, "dtype", None), "is_decimal") and values.dtype.is_decimal():
        values = values.cast(float)  # a Polars column of decimals would come as objects
    numbers = as_floats(values, f"feature {name!r}")
    if np.isinf(numbers).any():
        raise InputError(f"feature {name!r} is infinite in row {int(np.isinf(numbers).argmax())}; give it a number")
    return numbers
