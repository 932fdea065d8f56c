"""Field values to curves: the lookup of Contexts as plain tables that any language can search."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import count

from mcnet.data.contexts import Contexts
from mcnet.errors import InputError, NotSupportedError

__all__ = ["ContextMap", "free_name"]


@dataclass(frozen=True)
class ContextMap:
    """Each field value has a digit, each combination of digits may have a curve; every other one has curve 0.

    Digit 0 is "any value not listed". A combination is the whole number Σ digit · stride.
    """

    names: tuple[str, ...]
    digits: tuple[dict[str | None, int], ...]
    strides: tuple[int, ...]
    curves: dict[int, int]

    @staticmethod
    def of(contexts: Contexts) -> "ContextMap":
        """Return the map of a model's contexts; refuse texts that no file could hold.

        >>> from mcnet.data.fields import field_columns
        >>> contexts, _ = Contexts.of(field_columns({"country": ["NL", None]}), 2)
        >>> found = ContextMap.of(contexts)
        >>> found.digits, found.curves
        (({'NL': 1, None: 2},), {1: 1, 2: 2})
        """
        for name, values in zip(contexts.names, contexts.values, strict=True):
            for value in (name, *values):
                _check_text(name, value)
        digits = tuple({value: code + 1 for code, value in enumerate(values)} for values in contexts.values)
        radix = [len(values) + 1 for values in contexts.values]
        strides = [1] * len(radix)
        for field in range(len(radix) - 2, -1, -1):
            strides[field] = strides[field + 1] * radix[field + 1]
        if radix and strides[0] * radix[0] >= 2**62:
            raise NotSupportedError("the fields have too many values together to be exported; fit with fewer fields")
        rows = contexts.table.tolist() if contexts.names else []
        curves = {
            sum((code + 1) * stride for code, stride in zip(row, strides, strict=True)): number + 1
            for number, row in enumerate(rows)
        }
        return ContextMap(contexts.names, digits, tuple(strides), curves)

    @property
    def most(self) -> int:
        """Return the number above those of all combinations."""
        return self.strides[0] * (len(self.digits[0]) + 1) if self.strides else 1

    @cached_property
    def combinations(self) -> list[tuple[tuple[int, ...], int]]:
        """Return the digits and the curve of every combination that has one, in order of the digits."""
        found = []
        for key, curve in sorted(self.curves.items()):
            digits = []
            for stride in self.strides:
                digit, key = divmod(key, stride)
                digits.append(digit)
            found.append((tuple(digits), curve))
        return found


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """Return the name wanted, or that with a number if it is taken.

    >>> free_name("score", ["score", "country"])
    'score_2'
    """
    names = set(taken)
    if wanted not in names:
        return wanted
    return next(name for number in count(2) if (name := f"{wanted}_{number}") not in names)


def _check_text(field: str, value: str | None) -> None:
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        raise InputError(
            f"field {field!r} holds {value!r}, which is not valid Unicode text; clean it and refit"
        ) from None
