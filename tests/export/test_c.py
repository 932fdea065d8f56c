"""C: the header compiles anywhere without a warning and gives the bits of predict."""

import ctypes
import subprocess
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mcnet
from mcnet.curves.curves import Curves
from mcnet.export.c import context_numbers, export_c
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import model_document
from mcnet.rows.contexts import Contexts

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-std=c99")


def _compile(*arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


class _Library:
    """The header compiled to a shared library, called through ctypes."""

    def __init__(self, model, folder, flags=("-O1", *STRICT), name="mcnet"):
        self.model = model
        count = len(model.needed_fields)
        sized = ", ".join(f"texts[{i}], lengths[{i}]" for i in range(count))
        plain = ", ".join(f"texts[{i}]" for i in range(count))
        source = f'#include "model.h"\ndouble one(double s, int32_t c) {{ {"(void)c; " * (not count)}'
        source += f"return {name}_calibrate({'s, c' if count else 's'}); }}\n"
        source += "void many(const double *s, const int32_t *c, double *out, size_t n) { "
        source += f"{'' if count else '(void)c; '}{name}_calibrate_many({'s, c' if count else 's'}, out, n); }}\n"
        if count:
            source += (
                f"int32_t sized(const char **texts, const size_t *lengths) {{ return {name}_context_n({sized}); }}\n"
            )
            source += f"int32_t plain(const char **texts) {{ return {name}_context({plain}); }}\n"
        export_c(model, folder / "model.h", name=name)
        (folder / "library.c").write_text(source)
        # A name of its own for each, since a loaded library is not loaded again.
        target = folder / f"library{len(list(folder.iterdir()))}.so"
        compiled = target.with_suffix(".o")
        _compile("gcc", *flags, "-fPIC", "-c", "-o", str(compiled), str(folder / "library.c"))
        # Linked without -Ofast, which would set the whole process to flush subnormal numbers to zero.
        sanitizers = [flag for flag in flags if flag.startswith("-fsanitize")]
        _compile("gcc", *sanitizers, "-shared", "-o", str(target), str(compiled))
        self.loaded = ctypes.CDLL(str(target))
        self.loaded.one.restype = ctypes.c_double
        self.loaded.one.argtypes = [ctypes.c_double, ctypes.c_int32]

    def many(self, scores, codes):
        out = np.empty(len(scores))
        codes = None if codes is None else np.ascontiguousarray(codes, dtype=np.int32)
        pointers = [None if a is None else ctypes.c_void_p(a.ctypes.data) for a in (scores, codes, out)]
        self.loaded.many(*pointers, ctypes.c_size_t(len(scores)))
        return out

    def context(self, values):
        texts = [None if value is None else value.encode() for value in values]
        array = (ctypes.c_char_p * len(texts))(*texts)
        found = self.loaded.sized(array, (ctypes.c_size_t * len(texts))(*[len(t or b"") for t in texts]))
        if not any(b"\0" in (text or b"") for text in texts):
            assert self.loaded.plain(array) == found
        return found


def _model(values, field="site"):
    contexts = Contexts((field,), (tuple(values),), np.arange(len(values), dtype=np.int32)[:, None])
    pairs = [(np.array([0.1, 0.9]), np.array([0.01 * (c + 1), 0.5 + 0.01 * c])) for c in range(len(values) + 1)]
    return CalibrationModel("platt-field", {}, contexts, Curves.of(pairs))


def test_a_million_rows_have_the_bits_of_predict(tmp_path, large_model, rows_for):
    library = _Library(large_model, tmp_path)
    scores, fields = rows_for(large_model, 1_000_000)
    codes = context_numbers(large_model, fields) if fields else None
    np.testing.assert_array_equal(library.many(scores, codes), large_model.predict(scores, fields or None))


@pytest.mark.parametrize("flags", [("-O0", "-std=gnu99"), ("-O3", "-march=native", "-std=gnu11")])
def test_no_optimisation_and_no_fused_instruction_changes_a_bit(tmp_path, rows_for, two_field_model, flags):
    library = _Library(two_field_model, tmp_path, flags)
    scores, fields = rows_for(two_field_model, 100_000)
    codes = context_numbers(two_field_model, fields)
    np.testing.assert_array_equal(library.many(scores, codes), two_field_model.predict(scores, fields))


@settings(max_examples=15)
@given(data=st.data())
def test_nasty_models_have_the_bits_of_predict(tmp_path_factory, nasty_models, rows_for, data):
    model = data.draw(nasty_models)
    library = _Library(model, tmp_path_factory.mktemp("nasty"), ("-O0", *STRICT))
    scores, fields = rows_for(model, 300)
    codes = context_numbers(model, fields) if fields else None
    np.testing.assert_array_equal(library.many(scores, codes), model.predict(scores, fields or None))
    if fields:
        rows = list(zip(*fields.values(), strict=True))[:40]
        assert [library.context(row) for row in rows] == codes[:40].tolist()


def test_every_combination_of_values_leads_to_the_context_of_predict(tmp_path, two_field_model):
    library = _Library(two_field_model, tmp_path)
    seen = [(*values, None, "", "unseen", "NLx", "N") for values in two_field_model.contexts.values]
    for row in product(*seen):
        assert library.context(row) == two_field_model.contexts.find(row), row


def test_values_with_zero_bytes_are_told_apart_by_length(tmp_path):
    library = _Library(_model(["a", "a\0b", "a\0c"]), tmp_path)
    assert [library.context([value]) for value in ("a", "a\0b", "a\0c", "a\0d")] == [0, 1, 2, -1]


def test_one_row_at_a_time_is_the_same_and_wild_contexts_get_the_pooled_curve(tmp_path):
    model = _model(["NL", "US"])
    library = _Library(model, tmp_path)
    for context in (-(2**31), -2, -1, 2, 3, 2**31 - 1):
        assert library.loaded.one(0.3, context) == model.predict([0.3], ["unseen"])[0]
    assert library.loaded.one(0.3, 1) == model.predict([0.3], ["US"])[0]
    np.testing.assert_array_equal(library.many(np.array([0.3]), None), model.predict([0.3], ["unseen"]))


def test_nan_gives_nan_and_scores_outside_are_taken_as_the_ends(tmp_path):
    model = _model(["a"])
    found = _Library(model, tmp_path).many(np.array([np.nan, -1.0, -np.inf, 2.0, np.inf]), np.zeros(5))
    ends = model.predict([0.0, 1.0], ["a", "a"])
    np.testing.assert_array_equal(found, [np.nan, ends[0], ends[0], ends[1], ends[1]])


def test_a_compiler_told_to_ignore_nan_still_reads_inside_the_tables(tmp_path, two_field_model):
    library = _Library(
        two_field_model, tmp_path, ("-Ofast", "-march=native", "-fsanitize=undefined", "-fno-sanitize-recover")
    )
    strange = np.array([np.nan, -np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0])
    assert len(library.many(strange, np.full(8, len(two_field_model.contexts) - 1))) == 8


def test_the_header_is_clean_c_plus_plus(tmp_path, two_field_model, program):
    export_c(two_field_model, tmp_path / "model.h")
    (tmp_path / "use.cpp").write_text('#include "model.h"\n#include "model.h"\n')
    flags = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-std=c++11")
    _compile(program("g++"), *flags, "-c", "-o", str(tmp_path / "use.o"), str(tmp_path / "use.cpp"))


def test_nothing_is_writable_and_nothing_is_called_but_memory_functions(tmp_path):
    export_c(_model(["NL", "US"]), tmp_path / "model.h")
    (tmp_path / "use.c").write_text(
        '#include "model.h"\ndouble f(double s) { return mcnet_calibrate(s, mcnet_context("NL")); }\n'
    )
    _compile("gcc", "-O1", *STRICT, "-fno-pic", "-c", "-o", str(tmp_path / "use.o"), str(tmp_path / "use.c"))
    listed = subprocess.run(["nm", str(tmp_path / "use.o")], capture_output=True, text=True, check=True).stdout
    symbols = [line.split()[-2:] for line in listed.splitlines()]
    assert {name for kind, name in symbols if kind == "U"} <= {"memcmp", "strlen", "memcpy"}
    assert not [name for kind, name in symbols if kind in "bBdD"]


def test_two_models_live_in_one_program_and_the_example_runs(tmp_path):
    one, two = _model(["NL", "US"], "country"), _model(["a", None], "site")
    export_c(one, tmp_path / "one.h", name="clicks")
    export_c(two, tmp_path / "two.h", name="sales")
    (tmp_path / "use.c").write_text(
        '#include <stdio.h>\n#include "one.h"\n#include "two.h"\nint main(void) { printf("%.17g %.17g", '
        'clicks_calibrate(0.3, clicks_context("US")), sales_calibrate(0.3, sales_context(NULL))); return 0; }\n'
    )
    _compile("gcc", *STRICT, "-o", str(tmp_path / "use"), str(tmp_path / "use.c"))
    printed = subprocess.run([str(tmp_path / "use")], capture_output=True, text=True, check=True).stdout
    expected = [one.predict([0.3], ["US"])[0], two.predict([0.3], [None])[0]]
    assert [float(word) for word in printed.split()] == expected
    example = ("-x", "c", "-DCLICKS_EXAMPLE", str(tmp_path / "one.h"), "-o", str(tmp_path / "example"))
    _compile("gcc", *STRICT, *example)
    printed = subprocess.run(
        [str(tmp_path / "example"), "0.3", "US"], capture_output=True, text=True, check=True
    ).stdout
    assert float(printed) == expected[0]


def test_the_header_says_where_it_comes_from(tmp_path, large_model):
    export_c(large_model, tmp_path / "model.h")
    text = (tmp_path / "model.h").read_text(encoding="ascii")
    assert model_document(large_model)["checksum"] in text.splitlines()[1]
    assert f'#define MCNET_METHOD "{large_model.method}"' in text


@pytest.mark.parametrize("name", ["", "2x", "a-b", "a b", "é", "x;y"])
def test_a_name_that_c_cannot_use_is_refused(tmp_path, name):
    with pytest.raises(mcnet.InputError, match="name is"):
        export_c(_model(["a"]), tmp_path / "model.h", name=name)


def test_a_value_too_long_for_c_is_refused(tmp_path):
    with pytest.raises(mcnet.NotSupportedError, match="5,000 bytes"):
        export_c(_model(["x" * 5000]), tmp_path / "model.h")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        (("text", "text_length"), "mcnet"),
        (("text_length", "text"), "mcnet"),
        (("text", "Text", "text_2", "text_length", "text 2 length"), "mcnet"),
        (("context_n", "context"), "field"),
        (("a/*b", "b*/a", "//", "?/"), "mcnet"),
    ],
)
def test_no_name_of_a_field_breaks_the_header(tmp_path, fields, name):
    values = tuple((f"value {i}",) for i in range(len(fields)))
    contexts = Contexts(fields, values, np.zeros((1, len(fields)), dtype=np.int32))
    model = CalibrationModel("platt-field", {}, contexts, Curves.constant(0.25, 2))
    library = _Library(model, tmp_path, name=name)
    row = [known[0] for known in values]
    assert library.context(row) == 0
    for i in range(len(fields)):
        assert library.context([*row[:i], "other", *row[i + 1 :]]) == -1


def test_names_that_differ_in_capitals_alone_live_in_one_program(tmp_path):
    names = ("ctr", "CTR", "Ctr", "ctr_own", "CTR_own")
    source = "#include <stdio.h>\n"
    for number, name in enumerate(names):
        model = CalibrationModel("platt", {}, Contexts.none(), Curves.constant(0.125 * (number + 1)))
        export_c(model, tmp_path / f"{number}.h", name=name)
        source += f'#include "{number}.h"\n'
    printed = "".join(f'printf("%g ", {name}_calibrate(0.5)); ' for name in names)
    (tmp_path / "use.c").write_text(f"{source}int main(void) {{ {printed}return 0; }}\n")
    _compile("gcc", *STRICT, "-o", str(tmp_path / "use"), str(tmp_path / "use.c"))
    found = subprocess.run([str(tmp_path / "use")], capture_output=True, text=True, check=True).stdout
    assert [float(word) for word in found.split()] == [0.125, 0.25, 0.375, 0.5, 0.625]
