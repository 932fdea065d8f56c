"""Simulated impressions with clicks and conversions, shaped like the two data sets of the MCNet paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from mcnet._shared.arrays import CodeArray, FloatArray, IntArray, MaskArray
from mcnet.datasets.simulator import SimulatedField, SimulatedLog, simulate
from mcnet.errors import InputError

__all__ = ["PRESETS", "Counts", "Impressions", "Preset", "Split", "simulate_impressions"]

Split = Literal["training", "validation", "test"]
Kind = Literal["click", "conversion"]
KINDS: tuple[Kind, ...] = ("click", "conversion")
SPLITS: tuple[Split, ...] = ("training", "validation", "test")


@dataclass(frozen=True)
class Counts:
    """The counts of one split, one entry per field value."""

    impressions: tuple[int, ...]
    clicks: tuple[int, ...]
    conversions: tuple[int, ...]

    def rates(self, kind: Kind) -> tuple[float, ...]:
        """Return clicks over impressions, or conversions over clicks, of each field value."""
        above, below = (self.clicks, self.impressions) if kind == "click" else (self.conversions, self.clicks)
        return tuple(a / b for a, b in zip(above, below, strict=True))


@dataclass(frozen=True)
class Behaviour:
    """How one label behaves.

    `spread`: of its truth, in logits. `pcoc`: of its score on validation rows. `drift`: the mean of calibrated scores
    of test rows, over that of validation rows.
    """

    spread: float
    pcoc: float
    drift: float = 1.0


@dataclass(frozen=True)
class Preset:
    """A data set to imitate: its counts, its behaviour, and the share of its rows that scale 1 stands for."""

    name: str
    training: Counts
    validation: Counts
    test: Counts
    click: Behaviour
    conversion: Behaviour
    days: tuple[tuple[int, int], tuple[int, int], tuple[int, int]] | None = None
    unit: float = 1.0

    def counts(self, split: Split) -> Counts:
        """Return the counts of a split."""
        found: Counts = getattr(self, split)
        return found

    def sizes(self, split: Split, scale: float) -> IntArray:
        """Return the number of rows of each field value at a scale; never fewer than one."""
        wanted = np.asarray(self.counts(split).impressions) * self.unit * scale
        return np.maximum(np.rint(wanted).astype(np.int64), 1)


# The spreads give a score of these shapes the AUC that the paper reports for its base predictor. The drifts are those
# of the paper's scores: histogram binning is right about its own rows by construction, so its printed test PCOC, times
# the rate of the test rows over that of the validation rows, tells how far the scores moved. The PCOCs are those of
# the base predictor on the validation rows: the reported one on test rows, times the same ratio, over the drift.
# AliExpress: the validation conversions of field values 1 and 2 (158 and
# 108 in print) are exchanged, for as printed they lie four standard errors from a random split, on either side.
PRESETS = {
    "aliexpress": Preset(
        name="AliExpress",
        training=Counts((8_355_111, 219_651, 445_559, 98_100), (166_433, 5_451, 9_992, 2_112), (5_742, 311, 514, 117)),
        validation=Counts((2_785_326, 73_068, 148_164, 32_915), (55_176, 1_828, 3_240, 739), (1_913, 108, 158, 41)),
        test=Counts((5_115_069, 132_654, 253_662, 57_916), (123_544, 3_960, 7_052, 1_551), (4_191, 234, 415, 71)),
        click=Behaviour(spread=0.84, pcoc=0.943 / 1.0332, drift=1.0332),
        conversion=Behaviour(spread=1.20, pcoc=1.420 / 1.1860, drift=1.1860),
    ),
    "huawei": Preset(
        name="Huawei Browser",
        training=Counts(
            (273_615_005, 52_593_839, 16_687_407), (1_114_264, 466_101, 245_595), (515_301, 281_313, 163_380)
        ),
        validation=Counts((39_978_390, 6_759_591, 2_037_187), (147_305, 62_973, 32_509), (66_452, 37_404, 21_974)),
        test=Counts((40_125_618, 6_941_224, 2_191_654), (147_868, 63_692, 33_340), (65_944, 38_088, 22_146)),
        click=Behaviour(spread=1.60, pcoc=1.074 / 0.9622, drift=0.9622),
        conversion=Behaviour(spread=1.85, pcoc=0.976 / 0.9983, drift=0.9983),
        days=((1, 7), (8, 8), (9, 9)),
        # A sixteenth of it has as many validation rows as AliExpress.
        unit=1.0 / 16.0,
    ),
}


@dataclass(frozen=True)
class Impressions:
    """One split of simulated impressions, one per row.

    `click` and `conversion` are logs over the same rows: score, truth and label. A conversion is a label of
    clicked rows only (`clicked`); its truth is the probability of converting once clicked. `day` counts from 1
    where the data set is split by day.
    """

    field: CodeArray
    click: SimulatedLog
    conversion: SimulatedLog
    day: NDArray[np.int8] | None = None

    def __len__(self) -> int:
        return len(self.field)

    @property
    def clicked(self) -> MaskArray:
        """The rows that were clicked."""
        return np.equal(self.click.label, 1)

    def features(self, numeric: int = 6, categorical: int = 3) -> tuple[NDArray[np.float32], CodeArray]:
        """Return numbers and category codes that tell of both labels; the field is the first category."""
        parts = [log.features(numeric, categorical) for log in (self.click, self.conversion)]
        numbers = np.concatenate([part[0] for part in parts], axis=1)
        categories = np.concatenate([self.field[:, None], *(part[1] for part in parts)], axis=1)
        return numbers, categories


def simulate_impressions(
    preset: Preset,
    *,
    scale: float = 0.1,
    seed: int = 0,
    world: int | None = None,
    shift: bool = True,
    splits: Sequence[Split] = SPLITS,
) -> dict[Split, Impressions]:
    """Simulate splits of a data set: field sizes and rates as in the preset, at a scale, with known truth.

    The scores know the rates of the training rows. With `shift` the truth of the test rows has the test rates of
    the preset, and their scores move by its drift; without, nothing moves between fitting and testing.

    >>> parts = simulate_impressions(PRESETS["aliexpress"], scale=0.001, splits=("validation", "test"))
    >>> {name: len(part) for name, part in parts.items()}
    {'validation': 3039, 'test': 5560}
    """
    if not scale > 0:
        raise InputError(f"scale is {scale}; it must be the share of the data set's rows to simulate, above 0")
    world = seed if world is None else world
    result = {split: _simulate_split(preset, split, scale, seed, world, shift) for split in splits}
    judged = result.get("validation") or _simulate_split(preset, "validation", scale, seed, world, shift)
    # Only clicked rows can convert, so a row counts as much as it is likely to be clicked.
    moves = {
        "click": _move_to_pcoc(judged.click, np.ones(len(judged)), preset.click.pcoc),
        "conversion": _move_to_pcoc(judged.conversion, judged.click.probability, preset.conversion.pcoc),
    }
    for part in result.values():
        for kind, move in moves.items():
            score = getattr(part, kind).score
            score[:] = expit(logit(score) + move)
    if shift and "test" in result:
        if "validation" not in result:
            for kind, move in moves.items():
                score = getattr(judged, kind).score
                score[:] = expit(logit(score) + move)
        for kind in KINDS:
            before, after = (_weighed(part, kind) for part in (judged, result["test"]))
            score = getattr(result["test"], kind).score
            score[:] = expit(logit(score) + _drift(before, after, getattr(preset, kind).drift))
    return result


def _simulate_split(preset: Preset, split: Split, scale: float, seed: int, world: int, shift: bool) -> Impressions:
    place = SPLITS.index(split)
    draw = np.random.default_rng([seed, 17, place])
    sizes = preset.sizes(split, scale)
    field = draw.permutation(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))
    rates_of = preset.counts("validation" if split == "test" and not shift else split)
    logs = {}
    for number, kind in enumerate(KINDS):
        known, actual = (counts.rates(kind) for counts in (preset.training, rates_of))
        spec = SimulatedField(shares=tuple(sizes / sizes.sum()), rates=known, test_rates=actual)
        logs[kind] = simulate(
            0,
            test_rows=len(field),
            fields={"field": spec},
            rate=float(np.average(known, weights=preset.training.impressions)),
            spread=getattr(preset, kind).spread,
            codes={"field": field},
            seed=10 * seed + 3 * number + place,
            world=2 * world + number,
        )
    # Nobody converts who has not clicked.
    logs["conversion"].label[logs["click"].label == 0] = 0
    day = None
    if preset.days is not None:
        first, last = preset.days[place]
        day = draw.integers(first, last + 1, len(field)).astype(np.int8)
    return Impressions(field, logs["click"], logs["conversion"], day)


def _move_to_pcoc(log: SimulatedLog, weight: FloatArray, pcoc: float) -> float:
    """Return the shift of the score's logits after which predicted over true positives is `pcoc`."""
    sample = slice(0, 200_000)
    logits, weight = logit(log.score[sample]), weight[sample]
    wanted = pcoc * float(weight @ log.probability[sample])
    return float(brentq(lambda move: float(weight @ expit(logits + move)) - wanted, -20.0, 20.0))


Weighed = tuple[FloatArray, FloatArray, FloatArray]
"""Score, true probability and weight of rows."""


def _weighed(part: Impressions, kind: Kind) -> Weighed:
    log = part.click if kind == "click" else part.conversion
    return log.score, log.probability, np.ones(len(part)) if kind == "click" else part.click.probability


def _drift(validation: Weighed, test: Weighed, factor: float) -> float:
    """Return the shift of test logits after which histogram binning predicts `factor` times the validation rate.

    Its 20 bins of equal mass have the true rates of the validation rows: what is right about those rows.
    """
    if factor == 1.0:
        return 0.0
    score, truth, weight = (column[:200_000] for column in validation)
    order = np.argsort(score)
    mass = np.cumsum(weight[order]) / weight.sum()
    edges = score[order][np.searchsorted(mass, np.arange(1, 20) / 20)]
    where = np.searchsorted(edges, score, side="right")
    rates = np.bincount(where, weight * truth, 20) / np.bincount(where, weight, 20)
    wanted = factor * float(weight @ truth / weight.sum())
    logits, counts = logit(test[0][:200_000]), test[2][:200_000]
    low, high = -2.0, 2.0
    for _ in range(40):
        middle = (low + high) / 2.0
        predicted = rates[np.searchsorted(edges, expit(logits + middle), side="right")]
        low, high = (middle, high) if counts @ predicted < wanted * counts.sum() else (low, middle)
    return middle
