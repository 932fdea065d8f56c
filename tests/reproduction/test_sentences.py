"""The sentences beside a table say what the table says."""

import numpy as np
import pytest

from reproduction import (
    auxiliary,
    balance,
    curves,
    few_steps,
    headline,
    overfitting,
    performance,
    sensitivity,
    significance,
    sir,
)
from reproduction.kept_trainings import Look
from reproduction.literal import Forces, LiteralRecipe
from reproduction.pages import Value
from reproduction.settings import Settings
from reproduction.sources import open_source
from reproduction.tasks import Sample, Task
from reproduction.trials import ROSTER, Trial


def trial(**figures):
    usual = {
        "pcoc": 1.0,
        "f_rce": 0.1,
        "auc": 0.7,
        "log_loss": 0.1,
        "distance": 1e-4,
        "violations": 0.0,
        "clipped": 0.0,
    }
    usual |= {"fitted_pcoc": 1.0, "pcoc_std": 0.05}
    return Trial(usual | figures, np.ones(4), 0.1)


def test_sensitivity_names_the_parameter_that_moves_the_pcoc_most_and_the_best_values():
    grid = {"bins": (5, 20), "rate": (1e-5, 1e-3), "order": (0.1, 1.0)}
    results = {}
    for variant in sensitivity.VARIANTS:
        for parameter, values in grid.items():
            for place, value in enumerate(values):
                moved = 0.2 if (variant.sees_field, parameter) == (False, "order") else 0.01
                results[variant.name, parameter, value] = [trial(pcoc=1.0 + place * moved, f_rce=0.1 - place * 0.01)]
    text = " ".join(sensitivity._finding(results, grid))
    assert "MCNet-None, as printed spans 0.010 over bins, 0.010 over learning rate, 0.200 over β, most over β" in text
    assert "lowest at 20 (bins), 0.001 (learning rate), 1 (β)" in text
    assert "converged" not in text


@pytest.mark.parametrize("rises", [False, True])
def test_balance_agrees_with_the_paper_only_if_every_std_falls(rises):
    results = {}
    for place, model in enumerate(balance.MODELS):
        results[model.name, False] = [trial(pcoc_std=0.05)]
        results[model.name, True] = [trial(pcoc_std=0.06 if rises and place == 0 else 0.04, log_loss=0.2, pcoc=0.9)]
    text, left = balance._finding(results)
    count = len(balance.MODELS)
    assert f"The STD falls for {count - rises} of {count} models" in text
    assert ("as the paper says" in text) is not rises
    assert f"falls for {count} of them, and the log-loss gets worse for {count}" in text
    assert "p =" not in text
    assert left.startswith("With the term, STD in percentage points of MCNet-None and MCNet-Field as printed ")
    assert left.endswith(
        "best baseline 4 (NeuCalib). What beats it: as printed neither; trained on neither; with our priors neither."
    )


def test_balance_tests_what_the_term_changes_from_two_seeds_on():
    results = {}
    for model in balance.MODELS:
        results[model.name, False] = [trial(pcoc_std=0.05 + 0.01 * seed) for seed in range(3)]
        results[model.name, True] = [trial(pcoc_std=0.04 + 0.011 * seed) for seed in range(3)]
    assert "MCNet-None, as printed -0.90 (p = 0.0041), " in balance._finding(results)[0]


@pytest.mark.parametrize(("how", "shown"), [(performance.STILL, False), (performance.MOVED, True), ("rows", True)])
def test_the_papers_figures_stand_beside_rows_that_are_shifted_as_its_own(how, shown):
    table = performance._table("CTR (AliExpress)", how, {c.name: [trial()] for c in ROSTER}, 0)
    assert ("paper PCOC" in table.headings) is shown
    assert all(len(line) == len(table.headings) for line in table.lines)
    if shown:
        assert next(line for line in table.lines if line[0] == "MCNet-None, as printed")[-3:] == (
            Value(0.9745, 0.0141),
            Value(0.0177, 0.01, 2, 100.0, "%"),
            Value(0.7215, 0.0001),
        )
        assert [str(cell) for cell in table.lines[0][-3:]] == ["0.7727", "16.10%", "0.7216"]  # Base has one run
    own = performance._table("CTR (your scores)", how, {c.name: [trial()] for c in ROSTER}, 0)
    assert "paper PCOC" not in own.headings


@pytest.mark.parametrize("seeds", [1, 3])
def test_performance_speaks_of_significance_from_two_seeds_on(tmp_path, seeds):
    settings = Settings(open_source("simulated"), tmp_path, seeds=seeds)
    methods = {c.name: [trial(f_rce=0.1 + 0.001 * seed) for seed in range(seeds)] for c in ROSTER}
    methods["BayesMCNet"] = [trial(f_rce=0.05 + 0.0012 * seed, log_loss=0.05, distance=1e-5) for seed in range(seeds)]
    methods["MCNet-Field, as printed"] = [trial(violations=7.0, clipped=0.021) for _ in range(seeds)]
    runs = {how: {"CTR (AliExpress)": methods} for how in (performance.STILL, performance.MOVED)}
    sentences = performance._finding(runs, settings)
    text = " ".join(sentences)
    still = performance.STILL
    assert f"Lowest log-loss, {still}: CTR (AliExpress): BayesMCNet." in text
    assert f"Nearest to the truth, {still}: CTR (AliExpress): BayesMCNet." in text
    for how in runs:
        for figure, better in (("PCOC nearer to 1 than", 0), ("F-RCE below", 1)):
            (sentence,) = [
                part for part in sentences if part.startswith(f"{figure} that of the best baseline, {how}, of 1 task: ")
            ]
            assert f"BayesMCNet: {better}" in sentence
            assert ("p < 0.05" in sentence) is (seeds > 1 and better > 0)
    assert (
        "Nearest to 1 of all methods, with the paper's shift: CTR (AliExpress): Base (1.000, on its own rows 1.000)."
        in text
    )
    assert "broken 0 times, with the published objective up to 7 times" in text
    assert (
        "up to 7 times in a test set; its functions leave (0, 1), and are clipped, for up to 2.10% of the rows" in text
    )
    assert "nan" not in text
    remains = [part for part in sentences if "What beats it: " in part]
    assert len(remains) == len(runs)  # one sentence per table
    assert (
        "distance ×10⁻⁵ of MCNet-None and MCNet-Field as printed 10 and 10; trained on 10 and 10; with our"
        in remains[0]
    )
    assert remains[0].endswith("as printed neither; trained on neither; with our priors neither.")
    for compared in ("without priors → with them", "and the priors"):
        assert f"{compared}), {still}: CTR (AliExpress) 10 → 10 and 10 → 10." in text


def test_a_method_beats_the_best_baseline_only_beyond_noise():
    seeds = (0.0, 0.001, -0.001)

    def fits(level, wobble):
        return [trial(log_loss=level + wobble * seed) for seed in seeds]

    methods = {
        "Base": fits(0.2, 0.0),
        "SIR": fits(0.1, 1.0),
        "MCNet-None, as printed": fits(0.0999, -1.0),
        "MCNet-Field, as printed": fits(0.09, 1.1),
        "MCNet-None, trained on": fits(0.11, 1.0),
    }
    found = significance.remains(methods, "log_loss", ["Base", "SIR"], "log-loss")
    assert found == (
        "log-loss of MCNet-None and MCNet-Field as printed 0.0999 and 0.09; trained on 0.11; best baseline 0.1 (SIR). "
        "What beats it: as printed Field (None lower, within noise); trained on neither."
    )
    one = {name: trials[:1] for name, trials in methods.items()}
    found = significance.remains(one, "log_loss", ["SIR"], "log-loss")
    assert found.endswith("as printed None and Field; trained on neither.")


def test_performance_says_nothing_of_methods_that_are_right_about_their_rows_if_there_are_none():
    moved = {"CTR (AliExpress)": {c.name: [trial(pcoc=0.9, fitted_pcoc=1.1)] for c in ROSTER}}
    (text,) = performance._shift_sentences(moved)
    assert text.startswith("Nearest to 1 of all methods")


def test_curves_names_the_nearest_function_and_how_far_all_are_below():
    errors = {("SIR", "shift"): 0.2, ("NeuCalib", "shift"): 0.1}
    ratios = {("SIR", "shift"): 0.8, ("NeuCalib", "shift"): 0.9}
    text = curves._finding(errors, ratios, ["shift"], known=False)
    assert text.startswith(
        "Shift: NeuCalib is nearest to the bins' test rates (10.0% off on average), then SIR (20.0%)"
    )
    assert "0.80 to 0.90 of the bars" in text


def test_auxiliary_counts_rises_that_the_table_shows():
    def aucs(*gains):
        methods = {}
        for contender, gain in zip((c for c in ROSTER if c.name in auxiliary.MODELS), gains, strict=True):
            methods["Base"] = methods[contender.name] = [trial(auc=0.7)]
            methods[auxiliary.aux_name(contender)] = [trial(auc=0.7 + gain, pcoc=1.1)]
        return methods

    found = {"CTR (AliExpress)": aucs(0.00001, 0.0003, -0.01, 0.02, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)}
    text, left = auxiliary._finding(found, "all")
    assert text.startswith("Where the base predictor knew all of the features, ")
    assert "the AUC rises by 0.0001 or more in 2 of 10 cases (CTR (AliExpress): -0.0100 (" in text
    assert "and the PCOC moves away from 1 in 10. In 8 nothing is learnt" in text
    assert "CTR (AliExpress): log-loss of MCNet-None-Aux and MCNet-Field-Aux as printed" in left
    assert "(Base). What beats it: as printed neither" in left
    lines = {line[0]: line for line in auxiliary._table("CTR (AliExpress)", found["CTR (AliExpress)"]).lines}
    assert lines["NeuCalib"][-3:] == ("0.8472", "10.82%", "0.7216")  # of Table 1
    assert lines["NeuCalib-Aux"][-3:] == ("0.8966", "7.33%", "0.7258")  # of Table 2
    assert lines["BayesMCNet"][-3:] == ("–", "–", "–")


def test_overfitting_tells_a_level_that_strays_on_the_way():
    levels = {2: 1.0, 4: 0.5, 6: 0.9, 8: 0.9, 10: 0.8}
    by_epoch = {epochs: [trial(pcoc=level)] for epochs, level in levels.items()}
    straying, *_ = overfitting._finding({("CVR (A)", "over"): by_epoch}, ["over"])
    assert "PCOC 1.000 → 0.800 (0.500 to 1.000 on the way)." in straying
    by_epoch[4], by_epoch[6] = [trial(pcoc=0.95)], [trial(pcoc=1.0001)]
    steady, *_ = overfitting._finding({("CVR (A)", "over"): by_epoch}, ["over"])
    assert steady.endswith("PCOC 1.000 → 0.800.")


def test_overfitting_is_named_where_an_auc_falls():
    def follow(last):
        return {epochs: [trial(auc=0.8 if epochs < 10 else last)] for epochs in overfitting.EPOCHS}

    results = {("CVR (A)", "steady"): follow(0.7995), ("CVR (A)", "over"): follow(0.75)}
    text = overfitting._finding(results, ["steady", "over"])[-1]
    assert "by more than 0.002 for over on CVR (A) (0.0500)." in text
    assert overfitting._finding({("CVR (A)", "steady"): follow(0.7995)}, ["steady"])[-1] == "No AUC falls by 0.002."


@pytest.mark.parametrize(("high", "near"), [(0.95, 1), (0.90, 0)])
def test_the_headline_counts_what_comes_near_the_printed_pcoc_and_names_the_nearest(high, near):
    def looks(fitted, test):
        return [Look(trial(fitted_pcoc=fitted, pcoc=test), np.ones(3))]

    bold, usual = LiteralRecipe(rate=1e-3), LiteralRecipe(rate=1e-5)
    results = {(usual, 2): looks(0.97, 0.80), (usual, 10): looks(1.01, 0.84), (bold, 2): looks(1.15, high)}
    results[LiteralRecipe(rate=1e-3, start="torch"), 2] = [*looks(0.7, 0.6), *looks(0.5, 0.4)]
    anchors = {"Histogram Binning": [trial(pcoc=0.85, fitted_pcoc=1.0)]}
    text = " ".join(headline._finding(results, anchors, 0.83, 0.9745))
    assert "0.9745 on the test rows takes a PCOC of 1.15 on the rows it was fitted to" in text
    assert "From the identity, β = 1: fitted PCOC 0.970 to 1.150, test 0.800 to" in text
    assert f"(the paper prints 0.0141) are {near} of the 4 lines" in text
    assert "learning rate of 1e-05 the highest test PCOC is 0.840" in text
    assert f"Nearest to 0.9745 is {high:.3f}, from the identity, learning rate 0.001, β = 1, 2 epochs" in text
    own = " ".join(headline._finding(results, anchors, 0.83, None))  # rows that the paper knows nothing of
    assert "0.9745" not in own
    assert "From torch's own start, β = 1: fitted PCOC 0.500 to 0.700, test 0.400 to 0.600." in own
    assert own.endswith("β = 1, 2 trainings: after 2 epochs 0.500 to 0.700.")


@pytest.mark.parametrize("published", ["CVR (AliExpress)", None])
def test_few_steps_are_told_with_the_papers_figures_only_where_it_has_some(published):
    rows = Sample(np.full(10, 0.5), np.ones(10, dtype=np.int8), np.zeros(10, dtype=np.int32))
    task = Task("AliExpress" if published else "your scores", "CVR", rows, rows, published)
    found = {("Base", 0): [trial(fitted_pcoc=1.4)], ("MCNet-None, with our priors", 0): [trial(fitted_pcoc=1.001)]}
    found["MCNet-None, trained on", 0] = [trial(fitted_pcoc=1.02)]
    for recipe, *levels in zip(few_steps.RECIPES, (1.39, 0.2, 0.3), (1.39, 0.4, 0.3), strict=True):
        drawn = [trial(fitted_pcoc=level) for level in levels]
        found |= {(few_steps._name(recipe), epochs): drawn for epochs in (2, 10)}
    text = few_steps.few_steps_sentence(task, found, 30)
    assert "an epoch has 30 steps" in text
    assert "from the identity 1.390 and 1.390; as printed, from torch's own start 0.200 to 0.400 and 0.200 to" in text
    assert "base scores 1.400, trained on 1.020, with our priors 1.001." in text
    table = few_steps.few_steps_table(task, found, 30)
    assert table.lines[-1][:3] == ("as printed, from torch's own start, no exp(r)", "10", "300")
    assert all(len(line) == len(table.headings) for line in table.lines)
    assert ("1.100 and 1.117 after 2 and 10 epochs" in text) is (published is not None)
    assert (table.lines[-1][-1] == "1.1165") is (published is not None)


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (
            [0.2, -0.1, -0.1],
            "pushes the lowest bin down and, taken together, the 2 above up. In the former the PCOC",
        ),
        ([0.1, 0.1, -0.2], "pushes the 2 lowest bins down and, taken together, the 1 above up."),
        ([-0.2, 0.1, 0.1], None),
        ([0.0, 0.0, 0.0], None),
    ],
)
def test_the_headline_tells_which_bins_the_penalty_pushes_down_only_if_it_does(order, told):
    forces = {1.0: Forces(np.array([-0.2, 0.1, 0.1]), np.array(order), 0.05, 0.5)}
    text = headline._reason(forces, {"β = 1": np.array([0.4, 1.1, 1.3])}, headline.QUICK)
    assert "is 10 times that of the log-loss" in text
    assert "sum to 0.0000" in text
    if told is None:
        assert "pushes" not in text
    else:
        assert told in text
        assert text.endswith("2 predict too many, up to 1.30 times.") is (order[1] < 0)


@pytest.mark.parametrize("same", [True, False])
def test_sir_names_the_reading_that_comes_nearest_and_whether_it_does_on_every_task(same):
    tasks = {"CTR (A)": 0.78, "CTR (B)": 0.95}
    one, other = (reading.name for reading in sir.READINGS[1:3])
    results = {
        task: {"Base": [trial(pcoc=value)], one: [trial(pcoc=value + 0.01)], other: [trial(pcoc=0.9)]}
        for task, value in tasks.items()
    }
    if not same:
        results["CTR (B)"][other] = [trial(pcoc=0.95)]
    printed = {task: (value, value) for task, value in tasks.items()}
    text = sir._finding(results, {task: [(0.3, 0.04), (0.4, 0.06)] for task in tasks}, printed)
    assert "has its middle at a score of 0.350 and a mean score of 0.050" in text[0]
    assert f"Test PCOC: {one} 0.790; {other} 0.900. The paper's SIR has 0.780, nearest is {one}." in text[0]
    assert text[-1] == f"{one if same else 'No one reading'} is nearest to the paper's value on every task."
    assert "paper" not in " ".join(sir._finding(results, {task: [(0.3, 0.04)] for task in tasks}, {}))
