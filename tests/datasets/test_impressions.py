"""Simulated impressions: sizes, rates, shift and truth as the paper's statistics have them."""

import numpy as np
import pytest

from mcnet.errors import InputError
from reproduction.impressions import PRESETS, simulate_impressions
from reproduction.published import PERFORMANCE

ALI, HUAWEI = PRESETS["aliexpress"], PRESETS["huawei"]


def rates(part, kind):
    log, rows = getattr(part, kind), part.clicked if kind == "conversion" else np.ones(len(part), bool)
    codes = part.field[rows]
    return np.bincount(codes, log.probability[rows]) / np.bincount(codes)


def test_field_sizes_are_those_of_the_paper_at_the_scale():
    parts = simulate_impressions(ALI, scale=0.01)
    assert np.bincount(parts["training"].field).tolist() == [83551, 2197, 4456, 981]
    assert np.bincount(parts["test"].field).tolist() == [51151, 1327, 2537, 579]
    assert len(simulate_impressions(HUAWEI, scale=0.01, splits=("validation",))["validation"]) == 30484


def test_click_and_conversion_rates_by_field_are_those_of_each_split():
    parts = simulate_impressions(ALI, scale=0.1)
    for split, part in parts.items():
        np.testing.assert_allclose(rates(part, "click"), ALI.counts(split).rates("click"), rtol=0.04)
    big = rates(parts["test"], "conversion")[0]
    assert big == pytest.approx(4191 / 123544, rel=0.05)


def test_without_shift_the_test_rows_have_the_rates_of_the_validation_rows():
    shifted, still = (simulate_impressions(ALI, scale=0.03, shift=shift)["test"] for shift in (True, False))
    assert shifted.click.probability.mean() == pytest.approx(0.02448, rel=0.03)
    assert still.click.probability.mean() == pytest.approx(0.02006, rel=0.03)


@pytest.mark.parametrize("preset", [ALI, HUAWEI])
def test_the_scores_miss_the_validation_rate_as_the_papers_base_predictor_does(preset):
    part = simulate_impressions(preset, scale=0.05, splits=("validation",))["validation"]
    assert part.click.score.sum() / part.click.probability.sum() == pytest.approx(preset.click.pcoc, rel=1e-2)
    rows = part.clicked
    found = part.conversion.score[rows].sum() / part.conversion.probability[rows].sum()
    assert found == pytest.approx(preset.conversion.pcoc, rel=0.05)


@pytest.mark.parametrize("preset", [ALI, HUAWEI])
def test_with_the_shift_scores_move_as_the_papers_histogram_binning_tells(preset):
    parts = simulate_impressions(preset, scale=0.1, splits=("validation", "test"))
    for kind, name in (("click", "CTR"), ("conversion", "CVR")):
        printed = PERFORMANCE[f"{name} ({preset.name})"]["Histogram Binning"][0]
        before, after = (getattr(parts[split], kind) for split in ("validation", "test"))
        weight = [np.ones(len(p)) if kind == "click" else p.click.probability for p in parts.values()]
        # Right about the validation rows: their true rate, averaged over twenty bins of scores.
        order = np.argsort(before.score)
        mass = np.cumsum(weight[0][order]) / weight[0].sum()
        edges = before.score[order][np.searchsorted(mass, np.arange(1, 20) / 20)]
        bins = np.searchsorted(edges, before.score, side="right")
        rate = np.bincount(bins, weight[0] * before.probability) / np.bincount(bins, weight[0])
        predicted = weight[1] @ rate[np.searchsorted(edges, after.score, side="right")]
        assert predicted / (weight[1] @ after.probability) == pytest.approx(printed, rel=0.025)


def test_nobody_converts_who_has_not_clicked():
    part = simulate_impressions(ALI, scale=0.01, splits=("test",))["test"]
    assert not part.conversion.label[~part.clicked].any()
    assert part.conversion.label[part.clicked].any()


def test_truth_rises_with_the_score_inside_a_field_value():
    part = simulate_impressions(ALI, scale=0.01, splits=("test",))["test"]
    for log in (part.click, part.conversion):
        for value in range(4):
            rows = part.field == value
            order = np.argsort(log.score[rows])
            assert np.all(np.diff(log.probability[rows][order]) >= 0)


def test_features_mean_the_same_in_every_split_and_huawei_has_days():
    parts = simulate_impressions(HUAWEI, scale=0.002, seed=4)
    assert parts["training"].day.max() == 7
    assert set(parts["test"].day) == {9}
    for part in parts.values():
        numbers, categories = part.features()
        assert numbers.shape == (len(part), 12)
        assert categories.shape == (len(part), 7)
        np.testing.assert_array_equal(categories[:, 0], part.field)
    signs = [np.sign(np.corrcoef(p.features()[0][:, 0], p.click.signal)[0, 1]) for p in parts.values()]
    assert len(set(signs)) == 1


def test_a_scale_of_nothing_is_refused():
    with pytest.raises(InputError, match="above 0"):
        simulate_impressions(ALI, scale=0)
