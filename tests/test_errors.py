"""Errors in parts: what, where (file, column, row), the value found, and advice in the words of each reader."""

import pickle
import warnings

import polars as pl
import pytest

import mcnet
from mcnet.errors import Advice, CalibrationWarning, FileFormatError, InputError, NotFittedError, in_words


def raised(call, *arguments, **options):
    with pytest.raises(mcnet.errors.McnetError) as error:
        call(*arguments, **options)
    return error.value


def test_a_value_that_is_refused_is_known_by_its_column_row_and_file(tmp_path):
    rows = pl.DataFrame({"p": [0.1, 0.2], "click": [0, 1]})
    for name, score in (("a.csv", 0.3), ("b.csv", 7.5)):
        rows.with_columns(p=pl.Series([0.1, score])).write_csv(tmp_path / name)
    error = raised(mcnet.scan, [tmp_path / "a.csv", tmp_path / "b.csv"], score="p", label="click")
    assert (error.column, error.row, error.file, error.found) == ("p", 1, str(tmp_path / "b.csv"), 7.5)
    assert str(error).endswith("(first: row 1 of " + error.file + ", 7.5); " + str(error.advice))
    error = raised(mcnet.Platt().fit, [0.1, 0.2, "x"], [0, 1, 1])
    assert (error.column, error.row, error.found) == ("score", 2, "x")
    assert raised(mcnet.scan, tmp_path / "a.csv", score="q", label="click").column == "q"


@pytest.mark.parametrize(
    ("advice", "python", "shell", "service"),
    [
        (Advice("pass {replace}", replace=True), "pass replace=True", "pass --replace", 'pass "replace": true'),
        (Advice("pass {field}", field=None), "pass field=", "pass --field", 'pass "field"'),
        (Advice("{allow}", allow="weight"), "allow='weight'", "--allow weight", '"allow": "weight"'),
        (Advice("{separator}", separator=";"), "separator=';'", "--separator ';'", '"separator": ";"'),
        (Advice("{negatives_kept}", negatives_kept=None), "negatives_kept=", "--negatives-kept", '"negatives_kept"'),
        (Advice("a {b} c", shell="d {b}", b=None) | Advice("e"), "a b= c, or e", "d --b, or e", 'a "b" c, or e'),
        (Advice("{score_type}", score_type="logit"), "score_type='logit'", "--logits", '"score_type": "logit"'),
    ],
)  # fmt: skip
def test_advice_names_a_parameter_as_each_reader_writes_it(advice, python, shell, service):
    error = InputError("it is {replace} so", advice=advice)
    assert str(error) == f"it is {{replace}} so; {python}" == in_words(error, "python")
    assert in_words(error, "shell") == f"it is {{replace}} so; {shell}"
    assert in_words(error, "service") == f"it is {{replace}} so; {service}"


@pytest.mark.parametrize("kind", [InputError, FileFormatError, NotFittedError, CalibrationWarning])
def test_errors_keep_their_parts_across_processes(kind):
    error = kind("it is so", advice=Advice("pass {replace}", replace=True), column="p", row=3, file="a.csv", found=1.5)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.what, again.column, again.row, again.file, again.found) == (
        "it is so; pass replace=True", "it is so", "p", 3, "a.csv", 1.5
    )  # fmt: skip
    assert in_words(again, "shell") == "it is so; pass --replace"
    assert (str(kind("whole")), kind("whole").advice, in_words(kind("whole"), "shell")) == ("whole", None, "whole")


def test_a_warning_that_leaves_out_a_file_gives_the_advice_of_the_error(tmp_path):
    journal = mcnet.Journal(tmp_path / "journal")
    names = {"score": "p", "label": "click", "time": "day", "every": "1d"}
    log = pl.DataFrame({"p": [0.1, 0.2], "click": [0, 1], "day": ["2026-11-16T01:00"] * 2})
    log.write_csv(tmp_path / "a.csv")
    journal.add_files([tmp_path / "a.csv"], **names)
    log.with_columns(p=0.3).write_csv(tmp_path / "a.csv")
    log.with_columns(p=0.4).write_csv(tmp_path / "b.csv")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        journal.add_files([tmp_path / "a.csv", tmp_path / "b.csv"], **names)
    (message,) = [each.message for each in caught if "left out" in str(each.message)]
    assert "pass replace=True to replace them" in str(message)
    assert "pass --replace to replace them" in in_words(message, "shell")
