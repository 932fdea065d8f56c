"""Curves to C: one header without dependencies that computes the same bits as predict."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, count
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray, IntArray, ScoreType
from mcnet._shared.files import whole_file
from mcnet._shared.loops import bucket_starts
from mcnet.curves import rising_sum
from mcnet.errors import InputError, NotSupportedError
from mcnet.export import c_source
from mcnet.export.pieces import (
    HIGHEST_SCORE,
    LOWEST_SCORE,
    ContextMap,
    Exported,
    Parts,
    Pieces,
    checked_score_type,
    stamp,
    stamp_line,
    warn_of_size,
)
from mcnet.export.targets import Target
from mcnet.model.model import CalibrationModel
from mcnet.rows.contexts import Contexts
from mcnet.rows.derived import bin_texts
from mcnet.rows.fields import CLOCK, derivation

# A guide table: from the bits of a score to the few pieces it can fall into.

_MANTISSA_BITS = 52
_MOST_BITS = 6
_LEAST_LIMIT_OF_ENTRIES = 8192
"""A table may always have this many entries, and two per piece if that is more."""


@dataclass(frozen=True, eq=False)
class Guide:
    """For each grid and bucket, a piece from which `steps` halving steps reach every score of the bucket.

    A bucket is the exponent and the first bits of the mantissa of t = min(x, 1 − x), counted from `first`; those of the
    upper half run backwards, so buckets are in the order of scores: fine where the scores of rare events crowd, and
    read off without a logarithm. All buckets need the same number of steps, so a search never branches.
    """

    shift: int
    first: int
    buckets: int
    steps: int
    entries: IntArray

    @staticmethod
    def of(pieces: Pieces) -> "Guide":
        """Return the guide with the fewest steps that is not much larger than the table of starts itself."""
        allowed = max(_LEAST_LIMIT_OF_ENTRIES, 2 * len(pieces.starts))
        best = _guide(pieces, 0)
        for bits in range(1, _MOST_BITS + 1):
            finer = _guide(pieces, bits)
            if finer.entries.size > allowed:
                break
            if finer.steps < best.steps:
                best = finer
        return best


def _guide(pieces: Pieces, bits: int) -> Guide:
    shift = _MANTISSA_BITS - bits
    edges = bucket_starts(shift)
    # The highest score of a bucket may be where the next one starts, since starts are a hair low.
    ends = np.append(np.nextafter(edges[1:], 1.0), 1.0)
    result = np.empty((pieces.grids, len(edges)), dtype=np.int64)
    reach = 0
    for grid in range(pieces.grids):
        starts = pieces.starts[pieces.of_grid(grid)]
        result[grid] = np.maximum(np.searchsorted(starts, edges, side="right") - 1, 0)
        reach = max(reach, int((np.searchsorted(starts, ends, side="right") - 1 - result[grid]).max()))
    steps = reach.bit_length()
    # A search that begins further left still ends at the same piece, and then it never reads past its grid.
    furthest = np.maximum(pieces.grid_size - (1 << steps), 0)
    first = int(np.float64(LOWEST_SCORE).view(np.int64)) >> shift
    return Guide(shift, first, len(edges), steps, np.minimum(result, furthest[:, None]))


# Curves to C: one header without dependencies that computes the same bits as predict.

_LONGEST_LITERAL = 4095


def context_numbers(model: CalibrationModel, field: Any) -> NDArray[np.signedinteger]:
    """Return the number that the header's context function gives each row; -1 is the pooled curve."""
    columns = model.contexts.given(field)
    if not model.sums_up:
        return model.contexts.lookup(columns)
    if model.contexts.strides is None:
        raise NotSupportedError(f"{' × '.join(model.fields)} have more combinations than 64 bits can number")
    return model.contexts.combination_keys(columns) - np.int64(1)


def export_c(
    model: CalibrationModel, path: str | PathLike[str], *, name: str = "mcnet", score_type: ScoreType | None = None
) -> None:
    """Write the model as a C99 header, usable from C++ too, with NAME_calibrate, NAME_calibrate_many and NAME_context.

    A field that is derived from a column has a function NAME_cut_FIELD, which makes its value from a number, or from
    seconds since 1970 (a time below 0 is a missing one).

    Parameters
    ----------
    name : what the names in the header begin with; models used in one program need different ones. Macros begin with
        it in capitals, or, if it has capitals itself, with it and _own.
    score_type : what the functions take, "probability" or "logit"; by default what the model was fitted on.
    """
    takes = checked_score_type(model, score_type)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise InputError(f"name is {name!r}; it begins the names in C: letters, digits and _, a letter first")
    exported = Exported.in_parts(model)
    origin = stamp(model, exported, takes)
    known = ContextMap.of(exported.contexts)
    parameters = _parameters(known, name)
    shared = {"name": name, "NAME": _macros(name), "contexts": str(len(exported.curves) - 1)}
    shared["score"] = f"{name}_probability_(score)" if takes == "logit" else "score"
    shared |= {"lowest": repr(LOWEST_SCORE), "highest": repr(HIGHEST_SCORE)}
    pieces = Pieces.of(exported.curves)
    evaluation = "" if exported.parts and not known.curves else c_source.CURVES.substitute(shared, **_tables(pieces))
    if exported.parts:
        shared["contexts"] = str(known.most - 1)
        evaluation += _parts(exported.parts, shared)
    string = c_source.HEADER.substitute(
        shared,
        stamp=stamp_line(origin),
        usage=_call(name, parameters),
        checksum=_literal(origin["checksum"]),
        method=_literal(model.method),
        include="#include <math.h>\n" if takes == "logit" else "",
        scores=c_source.LOGIT_SCORES if takes == "logit" else c_source.PROBABILITY_SCORES,
        sigmoid=c_source.SIGMOID.substitute(shared) if takes == "logit" else "",
        evaluation=evaluation,
        functions=_cuts(exported.contexts, parameters, name) + _lookup(known, parameters, shared, exported.parts)
        if known.names
        else c_source.WITHOUT_FIELDS.substitute(shared),
        example=c_source.EXAMPLE.substitute(
            shared,
            words="".join(f" {parameter.upper()}" for parameter in parameters),
            call=_call(name, [f"argc > {i + 2} ? argv[{i + 2}] : NULL" for i in range(len(parameters))]),
        ),
    )
    warn_of_size("C header", len(string), len(pieces))
    with whole_file(path) as part:
        part.write_text(string, encoding="ascii")


def _tables(pieces: Pieces) -> dict[str, str]:
    """Return the texts of the numbers: starts, pieces, guide, curves, and the search through them."""
    guide = Guide.of(pieces)
    starts: list[float] = []
    begins = []
    for grid in range(pieces.grids):
        part = pieces.of_grid(grid)
        begins.append(len(starts))
        starts += [*pieces.starts[part].tolist(), float(pieces.stops[part][-1])]
        # A search of fixed length reads this far in the smallest grid, too.
        starts += [2.0] * (begins[-1] + (1 << guide.steps) + 1 - len(starts))
    grids = pieces.grid_of.tolist()
    curves = [
        f"{{{begins[grid]}, {begin}, {grid * guide.buckets}}}"
        for grid, begin in zip(grids, pieces.curve_begin.tolist(), strict=True)
    ]
    search = [
        f"    at += (uint32_t)(starts[at + {1 << power}] <= x) << {power};" for power in range(guide.steps - 1, -1, -1)
    ]
    return {
        "starts": _lines(map(repr, starts)),
        "pieces": _lines(
            f"{{{value!r}, {end!r}}}" for value, end in zip(pieces.values.tolist(), pieces.ends.tolist(), strict=True)
        ),
        "guide": _lines(map(str, guide.entries.ravel().tolist())),
        "guide_type": "uint16_t" if guide.entries.max() < 1 << 16 else "uint32_t",
        "reach": str((1 << guide.steps) - 1),
        "curves": _lines(curves),
        "shift": str(guide.shift),
        "first": str(guide.first),
        "last": str(guide.buckets - 1),
        "buckets": str(guide.buckets),
        "search": "\n".join(search),
    }


def _parts(parts: Parts, shared: dict[str, str]) -> str:
    """Return the tables and functions of a sum of rising terms."""
    name, knots = shared["name"], parts.family.knots.tolist()
    tables, pairs = [], []
    for index, numbers in enumerate(parts.numbers):
        tables.append(f"static const double {name}_part_{index}_[][{parts.width}] = {{\n{_rows(numbers)}\n}};\n")
    for index, pair in enumerate(parts.pairs):
        for what, entries in (("begin", pair.begin), ("second", pair.seconds)):
            body = _lines(map(str, entries.tolist()), 16)
            pairs.append(f"static const uint32_t {name}_pair_{index}_{what}_[] = {{\n{body}\n}};\n")
    if pairs:
        pairs.append(c_source.PAIR.substitute(shared))
    return c_source.PARTS.substitute(
        shared,
        knots=_lines(map(repr, knots)),
        origin=str(parts.family.origin),
        last=str(len(knots)),
        common=_lines(map(repr, parts.common.tolist())),
        moves=_rows(parts.moves),
        numbers=str(parts.width),
        parts="".join(tables),
        pairs="".join(pairs),
        limit=repr(parts.limit),
        to_whole=repr(rising_sum.TO_WHOLE),
        log2_e=repr(rising_sum.LOG2_E),
        ln2_high=repr(rising_sum.LN2_HIGH),
        ln2_low=repr(rising_sum.LN2_LOW),
        sqrt_half=repr(rising_sum.SQRT_HALF),
        log_grid=repr(rising_sum.LOG_GRID),
        exp_grid=repr(rising_sum.EXP_GRID),
        shorter=repr(rising_sum.SHORTER),
        **{f"e{power}": repr(number) for power, number in enumerate(rising_sum.EXP_SERIES)},
        **{f"l{power}": repr(number) for power, number in enumerate(rising_sum.LOG_SERIES)},
    )


def _rows(numbers: FloatArray) -> str:
    return ",\n".join(f"    {{{', '.join(map(repr, row))}}}" for row in numbers.tolist())


def _value_tables(known: ContextMap, parameters: list[str], name: str) -> tuple[list[str], list[str]]:
    """Return, per field, the table of its values, and the statement that adds the key of a value."""
    tables, sums = [], []
    for field, (digits, stride) in enumerate(zip(known.digits, known.strides, strict=True)):
        strings = {value.encode(): digit * stride for value, digit in digits.items() if value is not None}
        # C has no empty arrays; key 0 is what every unseen value gets.
        entries = sorted(strings.items(), key=lambda entry: (len(entry[0]), entry[0])) or [(b"", 0)]
        rows = "\n".join(f"    {{{_literal(string)}, {len(string)}, {key}u}}," for string, key in entries)
        tables.append(f"static const {name}_value_ {name}_field_{field}_[] = {{\n{rows}\n}};\n")
        string, length = parameters[field], f"{parameters[field]}_length"
        result = f"{name}_value_key_({name}_field_{field}_, {len(entries)}, {string}, {length})"
        sums.append(f"    key += {string} ? {result} : {digits.get(None, 0) * stride}u;")
    return tables, sums


def _lookup(known: ContextMap, parameters: list[str], shared: dict[str, str], parts: Parts | None) -> str:
    """Return the functions of a model with fields."""
    tables, sums = _value_tables(known, parameters, shared["name"])
    given = {
        "key_sum": "\n".join(sums),
        "parameters": ", ".join(f"const char *{string}" for string in parameters),
        "sized_parameters": ", ".join(f"const char *{string}, size_t {string}_length" for string in parameters),
        "sized_arguments": ", ".join(f"{string}, {string} ? strlen({string}) : 0" for string in parameters),
    }
    contexts, own = sorted(known.curves.items()), ""
    if parts is None:
        keys = _lines(f"{{{key}u, {curve - 1}}}" for key, curve in contexts or [(0, 0)])
        lookup = c_source.CURVE_LOOKUP.substitute(shared, **given)
    else:
        keys = _lines(f"{{{key}u, {curve}}}" for key, curve in contexts)
        lookup = c_source.PARTS_LOOKUP.substitute(shared, **given, **_sums(known, shared, parts))
    if contexts or parts is None:
        own = c_source.OWN_CONTEXTS.substitute(shared, keys=keys)
    return c_source.WITH_FIELDS.substitute(shared, values="\n".join(tables), own_contexts=own, lookup=lookup)


def _cuts(contexts: Contexts, parameters: list[str], name: str) -> str:
    """Return a function per derived field that gives the field value of a number, or of seconds since 1970."""
    functions = []
    for field, parameter in zip(contexts.names, parameters, strict=True):
        found = derivation(field)
        if found is None:
            continue
        begin = f"static inline const char *{name}_cut_{parameter}"
        if found[1] not in CLOCK:
            edges = contexts.edges[field]
            *below, last = bin_texts(edges)
            lines = [
                f"    if (number < {edge!r}) return {_literal(text)};" for edge, text in zip(edges, below, strict=True)
            ]
            about = f"The value of the field {found[0]}, a number cut into bins, for {name}_context; NaN is missing."
            body = "\n".join(["    if (number != number) return NULL;", *lines, f"    return {_literal(last)};"])
            functions.append(f"{_comment(about)}\n{begin}(double number) {{\n{body}\n}}\n")
        else:
            values = ", ".join(map(_literal, CLOCK[found[1]]))
            about = f"The {found[1]} of the field {found[0]}, for {name}_context, of seconds since 1970 in UTC."
            hour, day = "seconds / 3600 % 24", "(seconds / 86400 + 3) % 7"
            index = {"hour": hour, "weekday": day}.get(found[1], f"24 * ({day}) + {hour}")
            functions.append(
                f"{_comment(about)}\n{begin}(int64_t seconds) {{\n"
                f"    static const char *const values[] = {{{values}}};\n"
                f"    if (seconds < 0) return NULL;\n    return values[{index}];\n}}\n"
            )
    return "\n".join([*functions, ""]) if functions else ""


def _comment(text: str) -> str:
    """Return a comment in characters that no compiler minds."""
    return f"/* {text.encode('ascii', 'replace').decode().replace('*/', '* /').replace('?', '_')} */"


def _sums(known: ContextMap, shared: dict[str, str], parts: Parts) -> dict[str, str]:
    """Return the statements that add up the numbers of a context from its key."""
    name, codes, sums = shared["name"], [], []
    for field, (digits, stride) in enumerate(zip(known.digits, known.strides, strict=True)):
        codes.append(f"    const uint32_t code_{field} = (uint32_t)(key / {stride}u % {len(digits) + 1}u) - 1u;")
    for index, field in enumerate(parts.fields):
        known_here = f"code_{field} < {len(parts.numbers[index])}u"
        sums.append(f"    if ({known_here}) {name}_add_(numbers, {name}_part_{index}_[code_{field}]);")
    for index, pair in enumerate(parts.pairs):
        begin = f"{name}_pair_{index}_begin_"
        first, second = f"code_{pair.first}", f"code_{pair.second}"
        where = f"{begin}[{first}], {begin}[{first} + 1] - {begin}[{first}], {second}"
        found = f"{first} < {len(pair.begin) - 1}u ? {name}_pair_({name}_pair_{index}_second_, {where}) : UINT32_MAX"
        sums.append(f"    pair = {found};")
        part = f"{name}_part_{len(parts.fields) + index}_"
        sums.append(f"    if (pair != UINT32_MAX) {name}_add_(numbers, {part}[pair]);")
    return {
        "own": c_source.OWN_CURVE.substitute(shared) if known.curves else "",
        "codes": "\n".join(codes),
        "counters": "uint32_t pair;" if parts.pairs else "",
        "sums": "\n".join(sums),
        "numbers": str(parts.width),
    }


def _macros(name: str) -> str:
    """Return what the macros begin with: the name in capitals; one that has capitals itself is kept and marked.

    The mark is of small letters, so that ctr, Ctr and CTR never share a macro.

    >>> _macros("ctr"), _macros("CTR")
    ('CTR', 'CTR_own')
    """
    return name.upper() if name == name.lower() else f"{name}_own"


def _parameters(known: ContextMap, name: str) -> list[str]:
    """Return a C name for each field, free together with its NAME_length; the prefix keeps it from every keyword."""
    names: list[str] = []
    taken = {f"{name}_context_n"}  # called where the parameters are seen
    for field in known.names:
        plain = re.sub(r"[^a-z0-9]+", "_", field.lower()).strip("_")
        wanted = f"field_{plain}".rstrip("_")
        tried = chain([wanted], (f"{wanted}_{number}" for number in count(2)))
        names.append(next(string for string in tried if taken.isdisjoint((string, f"{string}_length"))))
        taken |= {names[-1], f"{names[-1]}_length"}
    return names


def _call(name: str, values: list[str]) -> str:
    """Return the C expression that calibrates `score` in the context of the values."""
    return f"{name}_calibrate(score, {name}_context({', '.join(values)}))" if values else f"{name}_calibrate(score)"


def _lines(entries: Iterable[str], per_line: int = 6) -> str:
    """Lay entries out in lines, a few each."""
    items = list(entries)
    return ",\n".join("    " + ", ".join(items[at : at + per_line]) for at in range(0, len(items), per_line))


def _literal(text: str | bytes) -> str:
    """Return a C string literal; every byte that could mean something to a compiler is written as a number."""
    data = text.encode() if isinstance(text, str) else text
    if len(data) > _LONGEST_LITERAL:
        raise NotSupportedError(
            f"a field value has {len(data):,} bytes (it begins {data[:40]!r}); C promises {_LONGEST_LITERAL:,} a text"
        )
    plain = "".join(chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in data)
    return f'"{plain}"'


TARGET = Target("c", (".h", ".hpp"), export_c)
