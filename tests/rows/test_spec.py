import ast

import pytest

from benchmarks.path_length import functions, many_parameters, source_files
from mcnet.errors import InputError
from mcnet.rows.spec import RowSpec, field_names
from mcnet.sketch.query_rows import read_spec, spec_text

SPEC = RowSpec("p", "y", ("country",), "w", resolution=64, score_type="logit", negatives_kept=0.5)


def test_a_column_of_time_is_a_further_field_that_is_cut_to_periods():
    timed = SPEC.with_time("ts", "1d")
    assert timed.fields == ("country", "ts")
    assert (timed.time, timed.every) == ("ts", {"ts": "1d"})
    assert SPEC.with_time("ts", None).every == {}


def test_the_arguments_make_the_same_spec_again():
    for spec in (SPEC, RowSpec("p", "y"), RowSpec(), SPEC.with_time("ts", "1d")):
        arguments = spec.arguments()
        again = RowSpec(fields=field_names(arguments.pop("field")), **arguments)
        assert (again if spec.time is None else again.with_time("ts", "1d")) == spec


def test_what_a_query_says_of_itself_is_read_back():
    assert read_spec(spec_text(SPEC)) == SPEC
    folded = RowSpec("p", "y", folds="part")
    assert '"folds":null' in spec_text(folded)
    assert read_spec(spec_text(folded)) == RowSpec("p", "y", folds="mcnet_fold")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"label": None}, "takes names of columns, not NoneType"),
        ({"weight": [1.0, 2.0]}, "takes names of columns, not list"),
        ({"fields": (7,)}, "takes names of columns, not int"),
        ({"fields": ("y",)}, "'y' is used twice"),
        ({"folds": "p"}, "'p' is used twice"),
        ({"every": {"ts": "1d"}}, "every names 'ts', which is not a field"),
        ({"score_type": "odds"}, "score_type is 'odds'"),
        ({"negatives_kept": 0.0}, "negatives_kept is 0.0"),
    ],
)
def test_a_spec_that_no_rows_can_have_is_refused(given, said):
    with pytest.raises(InputError, match=said):
        RowSpec(**{"score": "p", "label": "y", **given}).check()


def test_only_names_can_be_asked_of_rows_that_were_sketched_before():
    assert RowSpec("p", "y", ("country",), folds=5).only_names
    for more in ({"weight": "w"}, {"score_type": "logit"}, {"negatives_kept": 0.5}, {"resolution": 64}):
        assert not RowSpec("p", "y", **more).only_names


def test_how_rows_are_read_is_passed_on_as_one_value():
    """Functions that users call take the parts; those behind them take a `RowSpec`."""
    _, others = many_parameters(source_files())
    assert len(others) <= 8, others
    both = {"negatives_kept", "score_type"}
    taking = [
        f"{file.name}: {node.name}"
        for file in source_files()
        if file.parent.name in ("rows", "sketch", "store", "operations", "cli")
        for _, node in functions(ast.parse(file.read_text(encoding="utf-8")))
        if both <= {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
    ]
    assert sorted(taking) == ["query.py: sketch_query", "scan.py: scan", "sketch.py: from_rows"]
