"""The SELECT form: the whole model as one expression of nested CASEs."""

from collections.abc import Sequence
from dataclasses import dataclass

from mcnet.export.context_map import ContextMap
from mcnet.export.pieces import HIGHEST_SCORE, LOWEST_SCORE, Pieces
from mcnet.sql.dialects import Dialect

__all__ = ["Columns", "case_expression", "sigmoid_expression"]


@dataclass(frozen=True)
class Columns:
    """The columns the expression reads, quoted already, and the rows that have them, called r."""

    score: str
    fields: tuple[str, ...]
    rows: str

    @staticmethod
    def of(source: str, score: str, fields: Sequence[str], dialect: Dialect, *, logits: bool = False) -> "Columns":
        """Return the columns of a table, all quoted here but the table; logits become probabilities."""
        number, rows = f"r.{dialect.column(score)}", f"{source} AS r"
        if logits or dialect.name == "postgresql":
            # Beside a score that is numeric, PostgreSQL leaves every literal numeric: slow, and other digits.
            x = f"CAST({number} AS {dialect.double_type})"
            x = sigmoid_expression(x, dialect) if logits else x
            joined, number = dialect.computed
            rows = f"{rows} {joined.format(x)}"
        return Columns(number, tuple(f"r.{dialect.column(name)}" for name in fields), rows)


def sigmoid_expression(logit: str, dialect: Dialect) -> str:
    """Return the probability of a logit; beyond ±50 it is 0 or 1 to every digit that is used, and exp is safe."""
    near = f"LEAST(GREATEST({logit}, -50e0), 50e0)"
    nothing = f"{logit} IS NULL OR {dialect.is_nan.format(logit)}"  # GREATEST leaves NULL out
    return f"CASE WHEN {nothing} THEN NULL ELSE 1e0 / (1e0 + EXP(-{near})) END"


def case_expression(pieces: Pieces, known: ContextMap, columns: Columns, dialect: Dialect) -> str:
    """Return the expression of the calibrated probability; NULL where the score is NULL or NaN."""
    nothing = f"{columns.score} IS NULL OR {dialect.is_nan.format(columns.score)}"
    curves = [_curve(pieces, curve, columns.score, dialect, 2 if known.names else 1) for curve in range(pieces.curves)]
    if not known.names:
        return f"CASE WHEN {nothing} THEN NULL ELSE\n  {curves[0]}\nEND"
    chosen = "".join(f"\n    WHEN {curve} THEN {curves[curve]}" for curve in sorted(set(known.curves.values())))
    if not chosen:
        return f"CASE WHEN {nothing} THEN NULL ELSE\n  {curves[0]}\nEND"
    number = _choice(known, columns, dialect, 0, known.combinations)
    return f"CASE WHEN {nothing} THEN NULL ELSE\n  CASE {number}{chosen}\n    ELSE {curves[0]}\n  END\nEND"


def _choice(
    known: ContextMap,
    columns: Columns,
    dialect: Dialect,
    field: int,
    combinations: list[tuple[tuple[int, ...], int]],
) -> str:
    """Return the expression of the number of the curve, decided field by field; 0 is the pooled curve.

    A value that is listed but not in any of the combinations is not "any other value": it gets the pooled curve.
    """
    if field == len(known.names):
        return str(combinations[-1][1])
    by_digit: dict[int, list[tuple[tuple[int, ...], int]]] = {}
    for entry in combinations:
        by_digit.setdefault(entry[0][field], []).append(entry)

    def follow(digit: int) -> str:
        return _choice(known, columns, dialect, field + 1, by_digit[digit]) if digit in by_digit else "0"

    column, digits = columns.fields[field], known.digits[field]
    otherwise = follow(0)
    cases = [
        f" WHEN {dialect.text(value)} THEN {follow(digit)}"
        for value, digit in digits.items()
        if value is not None and (digit in by_digit or otherwise != "0")
    ]
    listed = f"CASE CAST({column} AS {dialect.text_type}){''.join(cases)} ELSE {otherwise} END" if cases else otherwise
    missing = follow(digits.get(None, 0))
    return f"CASE WHEN {column} IS NULL THEN {missing} ELSE {listed} END"


def _curve(pieces: Pieces, curve: int, score: str, dialect: Dialect, depth: int) -> str:
    """Return one curve as a balanced tree of comparisons: few of them for each row."""
    starts = pieces.starts[pieces.of_grid(int(pieces.grid_of[curve]))].tolist()
    part = pieces.of_curve(curve)
    values, slopes = pieces.values[part].tolist(), pieces.slopes[part].tolist()
    ceilings = pieces.ceilings[part].tolist()

    def leaf(at: int) -> str:
        if slopes[at] == 0.0:
            return dialect.number(values[at])
        # Only the outermost pieces meet scores that predict would have clipped.
        x = f"GREATEST({score}, {dialect.number(LOWEST_SCORE)})" if at == 0 else score
        x = f"LEAST({x}, {dialect.number(HIGHEST_SCORE)})" if at == len(starts) - 1 else x
        line = f"{dialect.number(slopes[at])} * ({x} - {dialect.number(starts[at])}) + {dialect.number(values[at])}"
        return f"LEAST({line}, {dialect.number(ceilings[at])})"

    def tree(low: int, high: int) -> str:
        if low == high:
            return leaf(low)
        middle = (low + high + 1) // 2
        less, more = tree(low, middle - 1), tree(middle, high)
        return f"CASE WHEN {score} < {dialect.number(starts[middle])} THEN {less} ELSE {more} END"

    return tree(0, len(starts) - 1)
