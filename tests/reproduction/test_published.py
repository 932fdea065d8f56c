"""The paper's figures agree with each other where they should, so that no typing error hides in them."""

import numpy as np
import pytest

from reproduction.impressions import PRESETS
from reproduction.published import (
    AUXILIARY,
    BALANCE,
    CONVERSIONS,
    EFFICIENCY,
    OVERFITTING,
    PERFORMANCE,
    PERFORMANCE_STD,
)
from reproduction.trials import ROSTER


def test_every_method_has_its_figures_on_every_task():
    published = list(dict.fromkeys(contender.published for contender in ROSTER if contender.published))
    for methods in PERFORMANCE.values():
        assert list(methods) == published
    assert [contender.name for contender in ROSTER if not contender.published] == ["BayesMCNet, no field", "BayesMCNet"]
    assert set(AUXILIARY) == set(PERFORMANCE)


def test_methods_that_start_at_random_have_standard_deviations_on_every_task():
    without = {"Base", "Histogram Binning", "Isotonic Regression", "SIR"}
    for task, methods in PERFORMANCE.items():
        assert set(PERFORMANCE_STD[task]) == set(methods) - without


def test_the_rows_have_the_conversions_of_the_paper_with_two_exchanged():
    printed = CONVERSIONS["aliexpress", "validation"]
    ours = PRESETS["aliexpress"].validation.conversions
    assert ours == (printed[0], printed[2], printed[1], printed[3])


@pytest.mark.parametrize("key", BALANCE)
def test_the_printed_std_is_the_sample_deviation_of_the_printed_pcocs(key):
    *_, std = BALANCE[key]
    assert np.std(BALANCE[key][3:7], ddof=1) == pytest.approx(std, abs=8e-4)


def test_f_rce_follows_from_pcoc_when_all_fields_err_alike():
    preset = PRESETS["aliexpress"]
    rate = sum(preset.test.clicks) / sum(preset.test.impressions)
    pcoc, f_rce, _ = PERFORMANCE["CTR (AliExpress)"]["Base"]
    assert (1 - pcoc) * rate / (rate + 0.01) == pytest.approx(f_rce, abs=2e-3)


def test_the_statistics_add_up_to_the_totals_of_the_paper():
    totals = {
        "aliexpress": {"training": (9_118_421, 183_988, 6_684), "validation": (3_039_473, 60_983, 2_220)},
        "huawei": {"validation": (48_775_168, 242_787, 125_830), "test": (49_258_496, 244_900, 126_178)},
    }
    for name, splits in totals.items():
        for split, (rows, clicks, conversions) in splits.items():
            counts = PRESETS[name].counts(split)
            assert (sum(counts.impressions), sum(counts.clicks), sum(counts.conversions)) == (rows, clicks, conversions)


def test_the_remaining_tables_are_whole():
    for times in EFFICIENCY.values():
        assert {key[1] for key in times} == {None, 10, 20, 50}
    assert all(len(pcoc) == len(auc) == 5 for pcoc, auc in OVERFITTING.values())
