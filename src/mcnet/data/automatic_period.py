"""The period to which a column of moments is cut, found while the column is read, so that a log is read once."""

from typing import TYPE_CHECKING, Any

from mcnet.data.fields import canonical_texts
from mcnet.data.periods import (
    MOST_PERIODS,
    cut_to_periods,
    divisor_of_coarser_periods,
    fitting_period,
    typed_moments,
)
from mcnet.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["AutomaticPeriod"]


class AutomaticPeriod:
    """Cuts a column to periods, batch after batch; the period gets coarser as the batches span more time.

    Up to MOST_PERIODS values stay as they are. With more, each batch is cut to a period that is at least as fine as
    the one found in the end and divides it; `final_texts` then says which final period each text belongs to.

    Attributes
    ----------
    every : the period that fits the rows so far, None where they have few values.
    """

    def __init__(self) -> None:
        """Start without rows."""
        self.every: str | None = None
        self._seen: pl.DataFrame | None = None
        self._low: Any = None
        self._high: Any = None

    def cut(self, column: "pl.Series") -> "pl.Series":
        """Return the text of the period of each moment, or the column itself while its values are few."""
        distinct = column.drop_nulls().unique(maintain_order=True)
        if self.every is None:
            texts = canonical_texts(distinct)
            self._remember(texts, distinct)
            if len(self._moments) <= MOST_PERIODS:
                return column
            distinct = self._moments.rename(column.name)
        self._widen(distinct)
        assert self.every is not None
        cut = cut_to_periods(column, divisor_of_coarser_periods(self.every))
        known = cut.is_not_null()
        self._remember(cut.filter(known), column.filter(known))
        return cut

    def final_texts(self) -> dict[str | None, str | None] | None:
        """Return the period of each text that `cut` returned; None if the values stay as they are."""
        if self.every is None or self._seen is None:
            return None
        periods = cut_to_periods(self._moments, self.every)
        return dict(zip(self._seen["text"].to_list(), periods.to_list(), strict=True))

    @property
    def _moments(self) -> "pl.Series":
        assert self._seen is not None
        return self._seen["moment"]

    def _remember(self, texts: "pl.Series", moments: "pl.Series") -> None:
        """Keep one moment per text."""
        import polars as pl

        new = pl.DataFrame({"text": texts, "moment": moments})
        both = new if self._seen is None else pl.concat([self._seen, new])
        self._seen = both.unique("text", keep="first", maintain_order=True)

    def _widen(self, moments: "pl.Series") -> None:
        """Choose the period that fits the span of these moments and those before."""
        try:
            typed = typed_moments(moments)
            ends = [end for end in (self._low, self._high, typed.min(), typed.max()) if end is not None]
            if not ends:
                return
            self._low, self._high = min(ends), max(ends)
            self.every = fitting_period(self._low, self._high)
        except InputError as error:
            number = len(self._moments)
            raise InputError(
                f"{moments.name} has {number:,} values or more, and {MOST_PERIODS} can be shown; {error}"
            ) from None
