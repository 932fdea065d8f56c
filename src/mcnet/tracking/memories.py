"""Memories: sketches with different half-lives, each with the curves last fitted to it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mcnet._shared.math import sums_by
from mcnet.sketch.cells import Cells
from mcnet.sketch.grid import POSITION_UNITS, LogitGrid, make_grid
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.experts import Expert, fit_expert

__all__ = ["SMALLEST_FADING", "Memory", "coarse", "pruned"]

RESOLUTION = 64
"""Cells per logit of what a tracker keeps."""
REFIT_SHARE = 1.0 / 40.0
"""A memory is fitted again when this share of its weight is new since its last fit …"""
REFIT_SHARE_OF_EVERYTHING = 1.0 / 100.0
"""… and this one of everything, which in a still world is to be as good as a fit of all rows."""
FITS_FROM_ONE_START = 16
"""Every so many fits one starts afresh, with new panels and strengths of priors; the others start from the last."""
EARLY_FITS_AFRESH = (0, 1, 2, 4, 8)
"""So do these, as the first rows tell little about either."""
SMALLEST_CELL = 1e-6
"""A memory that forgets drops cells below this share of their context's weight, and contexts below so many rows."""
SMALLEST_FADING = 1e-12
"""What has faded to less than this is forgotten altogether."""


@dataclass
class Memory:
    """A half-life in periods, the sketch that has faded by it, and the expert last fitted to that."""

    half_life: float
    sketch: Sketch | None = None
    expert: Expert | None = None
    fresh: float = 0.0
    """The weight that came since the last fit, faded as the rest."""
    age: float = 0.0
    """The mean age of the rows, in periods."""
    fits: int = 0
    """How many fits there were."""

    def learn(self, new: Sketch, elapsed: float, method: str) -> None:
        """Fade, add the rows of a period, and fit again if enough of them are new."""
        old = self.sketch
        if old is not None and np.isfinite(self.half_life):
            fading = 2.0 ** (-elapsed / self.half_life)
            old = fading * old if fading > SMALLEST_FADING else None
            self.fresh *= fading
        if old is None:
            self.sketch, self.age = new, 0.0
        else:
            self.sketch = old + new
            self.age = (self.age + elapsed) * old.total_weight / (old.total_weight + new.total_weight)
            if np.isfinite(self.half_life):
                self.sketch = pruned(self.sketch)
        self.fresh += new.total_weight
        share = REFIT_SHARE if np.isfinite(self.half_life) else REFIT_SHARE_OF_EVERYTHING
        if self.expert is None or self.fresh >= share * self.sketch.total_weight:
            self._fit(self.sketch, method)

    def _fit(self, sketch: Sketch, method: str) -> None:
        afresh = self.fits in EARLY_FITS_AFRESH or self.fits % FITS_FROM_ONE_START == 0
        found = fit_expert(method, sketch, None if afresh else self.expert)
        if found is None:
            return  # nothing to learn a curve from: the last one stays
        self.expert, self.fresh = found, 0.0
        self.fits += 1

    def copied(self, half_life: float) -> "Memory":
        """Return a memory of another half-life that so far has seen the same."""
        return replace(self, half_life=half_life)

    def state(self) -> dict[str, Any]:
        """Return the plain numbers; sketch and expert are kept apart."""
        half_life = self.half_life if np.isfinite(self.half_life) else None
        return {"half_life": half_life, "fresh": self.fresh, "age": self.age, "fits": self.fits}


def coarse(sketch: Sketch) -> Sketch:
    """Return the sketch on the grid that trackers use, without folds and without the list of its sources."""
    sketch = sketch.unfolded()
    if sketch.resolution != RESOLUTION:
        grid = make_grid(RESOLUTION)
        assert isinstance(grid, LogitGrid)
        key, _ = grid.locate(sketch.score)
        place = (sketch.score - grid.lower(key)) * grid.units_per_score[key - grid.first] - 0.5
        position = sketch.weight * np.clip(place, 0.0, POSITION_UNITS - 1.0)
        sums = np.column_stack([sketch.weight, np.minimum(sketch.positives, sketch.weight), position])
        cells = Cells(sketch.context, key, sketch.fold, sums).added_up()
        sketch = replace(sketch, cells=cells, resolution=RESOLUTION)
    # A list of every period's source would grow for ever.
    return replace(sketch, known_sources=(), columns={})


def pruned(sketch: Sketch) -> Sketch:
    """Return the sketch without cells and contexts that have faded to next to nothing."""
    weight = sketch.weight
    of_context = sums_by(sketch.context, weight, len(sketch.contexts))
    least = np.where(of_context < SMALLEST_CELL * min(1.0, float(of_context.sum())), np.inf, SMALLEST_CELL * of_context)
    keep = weight >= least[sketch.context]
    if keep.all():
        return sketch
    cells = sketch.cells.take(keep)
    used = np.zeros(len(sketch.contexts), dtype=bool)
    used[cells.context] = True
    contexts, places = sketch.contexts.subset(np.flatnonzero(used).astype(np.int32)).compacted()
    renumber = np.zeros(len(used), dtype=np.int32)
    renumber[used] = places
    cells = Cells(renumber[cells.context], cells.key, cells.fold, cells.sums).added_up()
    return replace(sketch, contexts=contexts, cells=cells)
