"""The evaluation as a whole: what it holds, prints and refuses."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcnet.errors import CalibrationWarning, InputError
from mcnet.metrics import CodedField, MetricSettings, compare, evaluate, evaluate_columns

METRICS = [
    "pcoc f_rce f_ece pcoc_std auc gauc log_loss brier prob_ece cal_n smooth_ece",
    "excess_log_loss kl_to_truth",
]
NAMES = " ".join(METRICS).split()


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    truth = rng.beta(2, 60, 20_000)
    return {
        "truth": truth,
        "p": truth * 1.1,
        "y": (rng.random(truth.size) < truth).astype(int),
        "country": rng.choice(["NL", "FR", "US"], truth.size, p=[0.7, 0.2, 0.1]),
        "slot": rng.integers(0, 2, truth.size),
    }


@pytest.fixture(scope="module")
def evaluation(rows):
    fields = {"country": rows["country"], "slot": rows["slot"]}
    return evaluate(rows["p"], rows["y"], fields, truth=rows["truth"])


@st.composite
def cells(draw):
    """Cells of whole weight, whole positives and few distinct probabilities, so that ties abound."""
    size = draw(st.integers(2, 12))
    weight = draw(st.lists(st.integers(1, 6), min_size=size, max_size=size))
    positives = [draw(st.integers(0, w)) for w in weight]
    p = draw(st.lists(st.sampled_from([0.02, 0.1, 0.35, 0.5, 0.9]), min_size=size, max_size=size))
    codes = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    return np.array(p), np.array(positives), np.array(weight), np.array(codes)


def assert_same(one, other):
    for name in NAMES:
        left, right = one.estimates[name], other.estimates[name]
        np.testing.assert_allclose(left.value, right.value, rtol=1e-9, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(left.floor, right.floor, rtol=1e-6, atol=1e-9, err_msg=name)
        assert left.note == right.note
    for name in ("pcoc", "auc", "gauc", "log_loss", "brier"):
        np.testing.assert_allclose(one.interval(name), other.interval(name), rtol=1e-6, atol=1e-6, err_msg=name)


HALF_A_TRIAL = (  # the number of trials of the noise floor is a half, which a rounding used to decide
    np.array([0.02, 0.02, 0.1, 0.02, 0.02, 0.02, 0.02, 0.5, 0.02, 0.02, 0.02]),
    np.zeros(11),
    np.array([1, 6, 6, 1, 1, 1, 2, 2, 1, 1, 1]),
    np.array([0, 2, 2, 0, 0, 0, 2, 2, 0, 0, 0]),
)


@settings(max_examples=12)
@given(cells())
@example(HALF_A_TRIAL)
def test_cells_give_what_their_rows_give(drawn):
    p, positives, weight, codes = drawn
    whole = evaluate(p, positives / weight, codes, weight)
    labels = np.concatenate([[1.0] * int(s) + [0.0] * int(w - s) for s, w in zip(positives, weight, strict=True)])
    assert_same(whole, evaluate(np.repeat(p, weight), labels, np.repeat(codes, weight)))


@settings(max_examples=12)
@given(cells(), st.randoms(use_true_random=False))
def test_the_order_of_rows_is_immaterial(drawn, random):
    p, positives, weight, codes = drawn
    order = list(range(p.size))
    random.shuffle(order)
    one = evaluate(p, positives / weight, codes, weight)
    assert_same(one, evaluate(p[order], (positives / weight)[order], codes[order], weight[order]))


@settings(max_examples=12)
@given(cells())
def test_rows_of_weight_zero_change_nothing(drawn):
    p, positives, weight, codes = drawn
    one = evaluate(p, positives / weight, codes, weight)
    more = [np.append(column, extra) for column, extra in ((p, 0.7), (positives / weight, 1), (codes, 9), (weight, 0))]
    other = evaluate(*more)
    assert_same(one, other)
    assert other.rows == one.rows


def test_every_metric_is_an_attribute_with_an_interval(evaluation):
    for name in NAMES:
        assert getattr(evaluation, name) == evaluation.estimates[name].value
        low, high = evaluation.interval(name)
        assert low <= high, name
    for name in ["pcoc", "auc", "gauc", "log_loss", "brier", "excess_log_loss", "kl_to_truth"]:
        low, high = evaluation.interval(name)
        assert low <= getattr(evaluation, name) <= high


def test_an_unknown_metric_is_named_with_the_known_ones(evaluation):
    with pytest.raises(InputError, match=r"no metric 'gini'; there are pcoc, f_rce"):
        evaluation.interval("gini")


def test_several_fields_have_a_table_each_and_one_of_contexts(evaluation, rows):
    assert list(evaluation.fields) == ["country", "slot"]
    assert evaluation.fields["country"].table.values == ("FR", "NL", "US")
    assert evaluation.fields["slot"].table.values == ("0", "1")
    assert len(evaluation.contexts.table) == 6
    assert evaluation.contexts.name == "country × slot"
    assert "FR / 0" in evaluation.contexts.table.values
    alone = evaluate(rows["p"], rows["y"], rows["country"])
    np.testing.assert_allclose(alone.fields["field"].table.pcoc, evaluation.fields["country"].table.pcoc)
    assert alone.f_rce == pytest.approx(evaluation.fields["country"].f_rce)
    assert alone.pcoc_std == pytest.approx(evaluation.fields["country"].pcoc_std)
    assert evaluation.f_rce == evaluation.contexts.f_rce
    nl = rows["country"] == "NL"
    assert alone.fields["field"].table.pcoc[1] == pytest.approx(rows["p"][nl].sum() / rows["y"][nl].sum())


def test_without_a_field_all_rows_are_one_context(rows):
    found = evaluate(rows["p"], rows["y"])
    assert dict(found.fields) == {}
    assert found.contexts.table.values == ("all rows",)
    assert found.gauc == found.auc
    assert np.isnan(found.kl_to_truth)
    assert "truth=" in found.estimates["kl_to_truth"].note
    assert "GAUC" not in str(found)


def test_the_dictionary_is_plain_json(evaluation):
    again = json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))
    assert again["metrics"]["pcoc"]["value"] == evaluation.pcoc
    assert again["metrics"]["pcoc"]["better"] == "one"
    assert again["metrics"]["f_rce"]["label"] == "F-RCE"
    assert again["metrics"]["f_rce"]["floor"] == evaluation.floor("F-RCE") > 0.0
    assert again["fields"]["country"]["metrics"]["f_rce"]["floor"] > 0.0
    assert again["interval_of"].startswith("the true value")
    assert again["settings"]["epsilon"] == 0.01
    assert again["fields"]["country"]["table"]["value"] == ["FR", "NL", "US"]
    assert len(again["reliability"]["observed"]) == 20


def test_the_text_says_which_epsilon_level_and_clip(rows):
    shown = str(evaluate(rows["p"], rows["y"], rows["country"], epsilon=0, level=0.9, clip=1e-7))
    assert "F-RCE (ε = 0)" in shown
    assert "true value (90%)" in shown
    assert "clip 1e-07" in shown
    assert "NL" in shown
    head, table = shown.split("\n\n")
    *lines, summary = table.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert summary.startswith("F-RCE of field: ")
    assert head.startswith("20,000 rows")


def test_long_field_tables_are_cut_in_text_only(rows):
    many = evaluate(rows["p"], rows["y"], np.arange(20_000) % 40)
    assert "… and 28 values less far off" in str(many)
    assert len(many.fields["field"].table) == 40


def test_the_worst_values_are_listed_not_the_largest():
    sizes = np.arange(30, 60)
    field = np.repeat(np.arange(30), 100 * sizes)
    rng = np.random.default_rng(1)
    truth = rng.uniform(0.05, 0.15, field.size)
    p = np.where(field == 3, 2.0, np.where(field == 5, 0.6, 1.0)) * truth
    found = evaluate(p, rng.random(field.size) < truth, field)
    lines = str(found).partition("off beyond noise\n")[2].splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["3", "5"]
    assert (lines[0].split()[-1][0], lines[1].split()[-1][0]) == ("+", "-")
    assert [line.split()[-1] for line in lines[6:12]] == ["0"] * 6
    table = found.to_dict()["fields"]["field"]["table"]
    assert float(lines[0].split()[-1].replace(",", "")) == pytest.approx(
        table["beyond_noise"][table["value"].index("3")], abs=0.06
    )


def test_the_repr_has_the_metrics_and_the_notebook_the_field_values(evaluation):
    assert repr(evaluation).startswith("Evaluation(20,000 rows, 662 positives: PCOC 1.0730, F-RCE ")
    assert "settings" not in repr(evaluation)
    shown = evaluation._repr_html_()
    for name in evaluation.fields:
        assert f"Values of {name}, the worst first" in shown
        assert f"F-RCE of {name}: " in shown


def test_sums_of_fractional_weights_are_printed_without_a_tail_of_digits():
    found = evaluate(np.full(3000, 0.5), np.arange(3000) % 3 == 0, weight=np.full(3000, 4.505543855))
    assert str(found).startswith("3,000 rows, weight 13,517, 4,506 positives\n")


def test_no_loss_has_an_interval_below_zero():
    found = evaluate([1e-9, 0.0, 0.6, 0.7], [1, 0, 1, 1])
    assert found.interval("log_loss")[0] == found.interval("brier")[0] == 0.0


def test_a_comparison_has_a_line_each(evaluation):
    lines = compare({"base": evaluation, "mcnet": evaluation}, ["pcoc", "auc"]).splitlines()
    assert lines[0].split() == ["PCOC", "AUC"]
    assert [line.split()[0] for line in lines[1:]] == ["base", "mcnet"]


def test_codes_and_settings_serve_whoever_has_cells_already():
    field = CodedField(np.array([0, 2, 0]), ("a", "b", "c"))
    found = evaluate_columns(
        np.array([0.1, 0.2, 0.3]),
        np.array([0.1, 0.2, 0.3]),
        np.full(3, 100.0),
        {"country": field},
        settings=MetricSettings(epsilon=0),
    )
    assert found.fields["country"].table.values == ("a", "c")
    assert found.pcoc == pytest.approx(1)
    assert found.f_rce == pytest.approx(0, abs=1e-12)
    assert found.weight == 300


@pytest.mark.parametrize("label", [0, 1])
def test_a_single_row_is_evaluated(label):
    found = evaluate([0.3], [label], ["a"])
    assert np.isnan(found.auc)
    assert found.estimates["auc"].note
    assert found.log_loss == pytest.approx(-np.log(0.3 if label else 0.7))
    assert str(found)


def test_probabilities_of_zero_and_one_are_evaluated():
    found = evaluate([0.0, 1.0, 0.5], [0, 1, 1], ["a", "b", "c"])
    assert found.log_loss == pytest.approx(-np.log(0.5) / 3)
    assert str(found)


def test_predictions_of_zero_throughout_do_not_break():
    found = evaluate([0.0, 0.0], [0, 0], ["a", "b"])
    assert np.isnan(found.pcoc)
    assert found.f_rce == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], []), "probability is empty; at least one row"),
        (([0.1, 0.2], [0]), "probability has 2, label has 1"),
        (([0.1, np.nan], [0, 1]), r"probability has 1 value missing, NaN or infinite \(first: row 1, nan\)"),
        (([0.1, 1.2], [0, 1]), r"probability has 1 value outside \[0, 1\] \(first: row 1, 1.2\)"),
        (([0.1, 0.2], [0, 2]), r"label has 1 value outside"),
        (([0.1, 0.2], [0, 1], None, [1, -1]), r"weight has 1 value below 0"),
        (([0.1, 0.2], [0, 1], None, [0, 0]), "every row has weight 0"),
        (([0.1, 0.2], [0, 1], ["a"]), "field field has 1"),
        (([[0.1, 0.2]], [[0, 1]]), r"probability has shape \(1, 2\)"),
    ],
)
def test_unusable_input_is_refused_with_what_was_found(arguments, message):
    with pytest.raises(InputError, match=message):
        evaluate(*arguments)


def test_too_few_bins_are_refused():
    with pytest.raises(InputError, match=r"^bins is 0; at least one bin is needed"):
        evaluate([0.1, 0.2], [0, 1], bins=0)


def test_a_plot_of_a_field_needs_it_in_both_evaluations():
    without, with_field = evaluate([0.1, 0.2], [0, 1]), evaluate([0.1, 0.2], [0, 1], ["a", "b"])
    with pytest.raises(InputError, match="there is no field 'field'; there are none"):
        without.plot("field")
    with pytest.raises(InputError, match="there is no field 'field' in the evaluation before; there are none"):
        with_field.plot("field", before=without)


def test_columns_of_other_lengths_are_refused_before_negatives_are_restored():
    message = "the columns differ in length: probability has 3, label has 3, weight has 2 rows"
    with pytest.raises(InputError, match=message):
        evaluate([0.1, 0.2, 0.3], [0, 1, 0], weight=[1.0, 2.0], negatives_kept=0.5)


def test_a_value_outside_its_interval_has_a_footnote():
    rng = np.random.default_rng(1)
    p = rng.uniform(0.02, 0.08, 4000)
    found = evaluate(p, rng.random(4000) < p, field=rng.integers(0, 40, 4000))
    assert found.f_rce > found.interval("f_rce")[1]
    shown = str(found).splitlines()
    line = next(line for line in shown if line.startswith("F-RCE ("))
    assert found.fields["field"].estimates["f_rce"] == found.estimates["f_rce"]
    error = found.estimates["f_rce"]
    assert f"noise floor {error.floor:.4f}, true value 0.0000 … {error.high:.4g}" in shown[-1]
    mark = line[-1]
    assert any(line.startswith(f"{mark} noise is part of the value") for line in shown)
    assert "noise is part of the value" in found._repr_html_()
    assert max(map(len, shown)) <= 100


def test_without_a_field_nothing_inside_fields_is_shown(rows):
    p, y = rows["p"], rows["y"]
    shown = str(evaluate(p, y))
    assert "PCOC" in shown
    for name in ("F-RCE", "F-ECE", "GAUC", "PCOC STD"):
        assert name not in shown


def test_labels_given_first_are_said(rows):
    with pytest.warns(CalibrationWarning, match="probabilities come first, labels second"):
        evaluate(rows["y"], rows["p"])
    evaluate(rows["y"], rows["y"])  # decisions, not probabilities: no mistake, and warnings are errors here
    evaluate(rows["p"], rows["p"])
