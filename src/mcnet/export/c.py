"""Curves to C: one header without dependencies that computes the same bits as predict."""

import re
from collections.abc import Iterable
from itertools import chain, count
from os import PathLike

from mcnet._shared.atomic_files import whole_file
from mcnet._shared.typing import ScoreType
from mcnet.errors import InputError, NotSupportedError
from mcnet.export.c_source import (
    EXAMPLE,
    HEADER,
    LOGIT_SCORES,
    PROBABILITY_SCORES,
    SIGMOID,
    WITH_FIELDS,
    WITHOUT_FIELDS,
)
from mcnet.export.contents import Exported, checked_score_type, warn_of_size
from mcnet.export.context_map import ContextMap
from mcnet.export.guide_table import Guide
from mcnet.export.pieces import HIGHEST_SCORE, LOWEST_SCORE, Pieces
from mcnet.export.stamp import stamp, stamp_line
from mcnet.export.targets import Target
from mcnet.model.model import CalibrationModel

__all__ = ["TARGET", "export_c"]

_ENTRIES_PER_LINE = 6
_LONGEST_LITERAL = 4095


def export_c(
    model: CalibrationModel, path: str | PathLike[str], *, name: str = "mcnet", score_type: ScoreType | None = None
) -> None:
    """Write the model as a C99 header, usable from C++ too, with NAME_calibrate, NAME_calibrate_many and NAME_context.

    Parameters
    ----------
    name : what the names in the header begin with; models used in one program need different ones. Macros begin with
        it in capitals, or, if it has capitals itself, with it and _own.
    score_type : what the functions take, "probability" or "logit"; by default what the model was fitted on.
    """
    takes = checked_score_type(model, score_type)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise InputError(f"name is {name!r}; it begins the names in C: letters, digits and _, a letter first")
    exported = Exported.of(model)
    origin = stamp(model, exported, takes)
    known = ContextMap.of(exported.contexts)
    parameters = _parameters(known, name)
    pieces = Pieces.of(exported.curves)
    shared = {"name": name, "NAME": _macros(name), "contexts": str(len(exported.curves) - 1)}
    shared["score"] = f"{name}_probability_(score)" if takes == "logit" else "score"
    text = HEADER.substitute(
        shared,
        stamp=stamp_line(origin),
        usage=_call(name, parameters),
        checksum=_literal(origin["checksum"]),
        method=_literal(model.method),
        include="#include <math.h>\n" if takes == "logit" else "",
        scores=LOGIT_SCORES if takes == "logit" else PROBABILITY_SCORES,
        sigmoid=SIGMOID.substitute(shared) if takes == "logit" else "",
        functions=_lookup(known, parameters, shared) if known.names else WITHOUT_FIELDS.substitute(shared),
        example=EXAMPLE.substitute(
            shared,
            words="".join(f" {parameter.upper()}" for parameter in parameters),
            call=_call(name, [f"argc > {i + 2} ? argv[{i + 2}] : NULL" for i in range(len(parameters))]),
        ),
        **_tables(pieces),
    )
    warn_of_size("C header", len(text), len(pieces))
    with whole_file(path) as part:
        part.write_text(text, encoding="ascii")


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
        "lowest": repr(LOWEST_SCORE),
        "highest": repr(HIGHEST_SCORE),
    }


def _lookup(known: ContextMap, parameters: list[str], shared: dict[str, str]) -> str:
    """Return the functions of a model with fields."""
    name = shared["name"]
    tables, sums = [], []
    for field, (digits, stride) in enumerate(zip(known.digits, known.strides, strict=True)):
        texts = {value.encode(): digit * stride for value, digit in digits.items() if value is not None}
        # C has no empty arrays; key 0 is what every unseen value gets.
        entries = sorted(texts.items(), key=lambda entry: (len(entry[0]), entry[0])) or [(b"", 0)]
        rows = "\n".join(f"    {{{_literal(text)}, {len(text)}, {key}u}}," for text, key in entries)
        tables.append(f"static const {name}_value_ {name}_field_{field}_[] = {{\n{rows}\n}};\n")
        text, length = parameters[field], f"{parameters[field]}_length"
        found = f"{name}_value_key_({name}_field_{field}_, {len(entries)}, {text}, {length})"
        sums.append(f"    key += {text} ? {found} : {digits.get(None, 0) * stride}u;")
    contexts = sorted(known.curves.items()) or [(0, 0)]
    return WITH_FIELDS.substitute(
        shared,
        values="\n".join(tables),
        keys=_lines(f"{{{key}u, {curve - 1}}}" for key, curve in contexts),
        key_sum="\n".join(sums),
        parameters=", ".join(f"const char *{text}" for text in parameters),
        sized_parameters=", ".join(f"const char *{text}, size_t {text}_length" for text in parameters),
        sized_arguments=", ".join(f"{text}, {text} ? strlen({text}) : 0" for text in parameters),
    )


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
        names.append(next(text for text in tried if taken.isdisjoint((text, f"{text}_length"))))
        taken |= {names[-1], f"{names[-1]}_length"}
    return names


def _call(name: str, values: list[str]) -> str:
    """Return the C expression that calibrates `score` in the context of the values."""
    return f"{name}_calibrate(score, {name}_context({', '.join(values)}))" if values else f"{name}_calibrate(score)"


def _lines(entries: Iterable[str]) -> str:
    """Lay entries out in lines, a few each."""
    items = list(entries)
    return ",\n".join(
        "    " + ", ".join(items[at : at + _ENTRIES_PER_LINE]) for at in range(0, len(items), _ENTRIES_PER_LINE)
    )


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
