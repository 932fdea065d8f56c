"""Money on real auctions: log-loss and surplus of every method; and what a calibrated score looks like in money.

The auctions are those of a real bidder (iPinYou's research data, prepared by the public repository han-cai/rlb-dp),
which lie beside the repository and are not part of it.
"""

import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

import mcnet
from benchmarks import report
from benchmarks.data import real_folder
from benchmarks.methods import NEEDS_FIELD, OWN_METHODS, PEER_METHODS
from benchmarks.peers import calling
from benchmarks.peers.calling import Job, recall, run
from mcnet.metrics.actions import find_actions
from mcnet.metrics.field_values import CodedField
from mcnet.metrics.judged_rows import MetricSettings
from mcnet.metrics.money import RowValues, money_of_rows
from mcnet.rows.logs import BATCH_ROWS

RAW, OFFSETS, OFFSET = "raw scores", "mcnet: offset-field", "mcnet: offset"
METHODS = (
    PEER_METHODS
    | OWN_METHODS
    | {("mcnet", "temperature"): False, ("mcnet", "offset"): False, ("mcnet", "offset-field"): True}
)
# Without a field these have nothing to do, or are another line of the table.
FIELD_ALONE = NEEDS_FIELD | {("probcal", "segmented beta"), ("probcal", "segmented spline"), ("mcnet", "MCNet-Field")}
BLOCKS, FIRST, BLOCKS_AT_A_TIME = 60, 20, 2
"""The campaign in order: its blocks, the first that is predicted, and how many are predicted by one fit."""
FIRST_REPLAY = {
    RAW: ("0.013162", "–", "–", "2,474", "329"),
    "mcnet: platt": ("0.012572", "+22 ± 2", "–", "9,403", "479"),
    "mcnet: isotonic": ("0.012514", "+28 ± 3", "-8.0 ± 1.5", "9,445", "493"),
    OFFSETS: ("0.012747", "+39 ± 1", "–", "7,735", "464"),
    "mcnet: platt-field": ("0.012369", "+44 ± 3", "+3.6 ± 1.3", "9,729", "510"),
    "mcnet-bayes": ("0.012347", "+48 ± 3", "+6.7 ± 1.4", "9,438", "513"),
}
"""What a script found before there was a replay here, on eight splits, with the methods as they were then."""


def loss(p: np.ndarray, y: np.ndarray) -> float:
    """Return the mean log-loss."""
    q = np.clip(p, 1e-7, 1 - 1e-7)
    return float(-(y * np.log(q) + (1 - y) * np.log1p(-q)).mean())


def scores_of(rows: pl.DataFrame) -> np.ndarray:
    """Return the scores, inside (0, 1)."""
    return np.clip(rows["score"].to_numpy(), 1e-7, 1 - 1e-7)


def break_even(rows: pl.DataFrame) -> np.ndarray:
    """Return the value of each row at which its campaign breaks even."""
    each = (pl.col("price").sum() / 1000 / pl.col("label").sum()).over("campaign")
    return rows.select(each).to_series().to_numpy()


def figures(p: np.ndarray, rows: pl.DataFrame) -> list[float]:
    """Return log-loss, surplus, spend and clicks of bids from probabilities."""
    y, price, value = rows["label"].to_numpy().astype(float), rows["price"].to_numpy() / 1000, rows["value"].to_numpy()
    won = value * p > price
    return [loss(p, y), float((value * y - price)[won].sum()), float(price[won].sum()), float(y[won].sum())]


def nine_campaigns(
    rows: pl.DataFrame, splits: int, folder: Path
) -> tuple[dict[str, dict[int, list[float]]], dict[str, str]]:
    """Return log-loss, surplus, spend and clicks of each split by method, and why methods failed; halves of blocks."""
    rows = rows.with_columns(score=scores_of(rows), value=break_even(rows), field=pl.col("campaign").cast(pl.String))
    jobs, found = [], {RAW: {}}
    for seed in range(splits):
        chosen = pl.col("block").is_in(np.random.default_rng(seed).permutation(101)[:50].tolist())
        fit, test = folder / f"fit{seed}.parquet", folder / f"test{seed}.parquet"
        rows.filter(chosen).select("score", "label", "field").write_parquet(fit)
        rows.filter(~chosen).write_parquet(test)
        found[RAW][seed] = figures(pl.read_parquet(test)["score"].to_numpy(), pl.read_parquet(test))
        for key, with_field in METHODS.items():
            fields = ("field",) if with_field else ()
            jobs.append(Job(*key, fit, test, len(rows) // 2, fields, warm=False, tags={"seed": seed}))

    def judge(job: Job) -> None:
        job.answer["figures"] = figures(job.answer["p"], pl.read_parquet(job.test))

    kept = report.KEPT / "money_nine.json"
    report.KEPT.mkdir(parents=True, exist_ok=True)

    def save() -> None:
        kept.write_text(json.dumps([job.plain() for job in jobs if job.answer]))

    run(recall(jobs, kept), 600.0, judge, save)
    failed: dict[str, str] = {}
    for job in sorted(jobs, key=lambda job: job.tags["seed"]):
        if job.failed:
            failed[job.name] = job.failed
        elif job.answer:
            found.setdefault(job.name, {})[job.tags["seed"]] = job.answer["figures"]
    return {name: lines for name, lines in found.items() if name not in failed}, failed


def in_order(rows: pl.DataFrame, folder: Path) -> dict[str, np.ndarray]:
    """Return the probabilities of the later blocks of one campaign by method, each by a fit on all blocks before it."""
    kept = report.KEPT / "money_in_order.npz"
    if calling.RESUME and kept.exists():
        return dict(np.load(kept))
    rows = rows.with_columns(score=scores_of(rows), part=pl.int_range(pl.len()) * BLOCKS // pl.len())
    jobs, parts = [], {}
    for begin in range(FIRST, BLOCKS, BLOCKS_AT_A_TIME):
        fit, test = folder / f"before{begin}.parquet", folder / f"from{begin}.parquet"
        earlier = rows.filter(pl.col("part") < begin)
        earlier.select("score", "label").write_parquet(fit)
        rows.filter(pl.col("part").is_between(begin, begin + BLOCKS_AT_A_TIME - 1)).write_parquet(test)
        for key in METHODS:
            if key not in FIELD_ALONE:
                jobs.append(Job(*key, fit, test, len(earlier), warm=False, tags={"begin": begin}))

    def judge(job: Job) -> None:
        parts[job.name, job.tags["begin"]] = job.answer["p"]

    run(jobs, 600.0, judge)
    failed = {job.name for job in jobs if job.failed}
    result = {RAW: rows.filter(pl.col("part") >= FIRST)["score"].to_numpy()}
    for name in dict.fromkeys(job.name for job in jobs if job.name not in failed):
        result[name] = np.concatenate([p for (own, _), p in sorted(parts.items()) if own == name])
    np.savez_compressed(kept, **result)
    return result


def replayed(rows: pl.DataFrame, chances: dict[str, np.ndarray], factor: float) -> mcnet.Replay:
    """Replay the later blocks of one campaign at a factor of its break-even value."""
    part = np.arange(len(rows)) * BLOCKS // len(rows)
    later = part >= FIRST
    y, price = rows["label"].to_numpy().astype(float), rows["price"].to_numpy()
    value = factor * price.sum() / 1000 / y.sum()
    return mcnet.replay(chances, y[later], price[later], value, price_per=1000, blocks=part[later], against=OFFSET)


def calibrated(runs: int, rows: int = 12_000, values: int = 25) -> dict[str, float]:
    """Return how often the action list is empty, and over-bid + under-bid over the naive figure, if scores are true."""
    empty, shares = 0, []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        p = 1 / (1 + np.exp(-rng.normal(-2.5, 0.8, rows)))
        y, codes = (rng.random(rows) < p).astype(float), rng.integers(0, values, rows)
        value = np.round(rng.lognormal(0.0, 0.6, rows), 2)
        fields = {"field": CodedField(codes, tuple(map(str, range(values))))}
        money = money_of_rows(RowValues(value).rows(p, y, np.ones(rows)), fields, MetricSettings())
        empty += not find_actions({name: (values, table.sums) for name, (values, table) in money.fields.items()})
        order = np.lexsort((p, codes))
        parts = np.array_split(order, values * 10)
        errors = np.array([(value * (p - y))[part].sum() for part in parts])
        shares.append((money.over.value + money.under.value) / np.abs(errors).sum())
    return {"runs": runs, "empty": empty, "share": float(np.mean(shares))}


def won_rows(seeds: int = 20) -> dict[str, np.ndarray]:
    """Return the surplus of scores, and what fits on won rows add to it, plain and weighted, in simulated auctions."""
    result: dict[str, list[float]] = {}
    for seed in range(seeds):
        made = mcnet.simulate_auctions(150_000, seed=seed)
        won, country = made.won, made.country.astype(str)
        bids = {"scores": made.score}
        for name, more in (("naive", {}), ("weighted", {"propensity": made.propensity[won]})):
            sketch = mcnet.Sketch.from_rows(made.score[won], made.label[won], field=country[won], **more)
            bids[name] = mcnet.calibrator("platt-field").fit_sketch(sketch).predict(made.score, field=country)
        found = mcnet.replay(bids, made.label, made.price, made.value)
        result.setdefault("scores", []).append(found.outcomes["scores"].surplus)
        for name in ("naive", "weighted"):
            result.setdefault(name, []).append(found.differences[name].value)
    return {name: np.array(values) for name, values in result.items()}


def carrying(rows: int) -> dict[str, float]:
    """Return time and size of a sketch with values, over those of the same one without."""
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-rng.normal(-4, 1, rows)))
    field = rng.integers(0, 200, rows)
    table = pl.DataFrame({"p": p, "y": (rng.random(rows) < p).astype(np.int8), "f": field})
    table = table.with_columns(bid=pl.Series(np.round(rng.lognormal(0, 0.6, rows), 2)))
    columns = {name: table[name].to_numpy() for name in table.columns}
    with TemporaryDirectory() as folder:
        log, saved = Path(folder) / "log.parquet", Path(folder) / "sketch.parquet"
        table.write_parquet(log)
        times, sizes = {}, {}

        def timed(name: str, function: Callable[..., Any], *given: Any, **more: Any) -> Any:
            begin = time.process_time()
            result = function(*given, **more)
            times.setdefault(name, []).append(time.process_time() - begin)
            return result

        def read(*names: str) -> None:
            for _ in pl.scan_parquet(log).select(names).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True):
                pass

        for _ in range(10):  # the shortest of each: what else the machine does only ever adds
            for name, more in (("without", {}), ("with", {"value": "bid"})):
                timed(name, mcnet.scan, log, score="p", label="y", field="f", **more).save(saved)
                sizes[name] = saved.stat().st_size
                given = {role: columns[column] for role, column in more.items()}
                timed(f"memory {name}", mcnet.Sketch.from_rows, columns["p"], columns["y"], field=field, **given)
                timed(f"read {name}", read, "p", "y", "f", *more.values())
    least = {name: min(taken) for name, taken in times.items()}
    return {
        "time": least["with"] / least["without"],
        "memory": least["memory with"] / least["memory without"],
        "read": (least["read with"] - least["read without"]) / least["without"],
        "size": sizes["with"] / sizes["without"],
        "rows": rows,
    }


def flights(path: Path) -> int:
    """Return how many of the first ten actions are among the ten with the largest rows × error beyond noise."""
    rows = pl.read_parquet(path, columns=["score", "label", "field"])
    sketch = mcnet.scan(rows, score="score", label="label", field="field").with_value(1.0)
    found = mcnet.evaluate_sketch(mcnet.calibrator("base").fit_sketch(sketch), sketch)
    table = found.fields["field"].table
    worst = {table.values[i] for i in np.argsort(-np.abs(table.beyond_noise))[:10]}
    return sum(action.value in worst for action in found.actions()[:10])


def line_of(nine: dict[str, dict[int, list[float]]], method: str) -> tuple[object, ...]:
    """Return the surplus over that of offsets, and the line of a method: all on the splits that it was measured on."""
    found = np.array(list(nine[method].values()))
    raw, offsets = (np.array([nine[name][seed][1] for seed in nine[method]]) for name in (RAW, OFFSETS))
    fewer = "" if len(found) == len(nine[RAW]) else f" ({len(found)} split{'s' * (len(found) > 1)})"
    return (
        float((found[:, 1] / offsets).mean()),
        method + fewer,
        f"{found[:, 0].mean():.6f}",
        "–" if method == RAW else spread(found[:, 1] / raw - 1),
        "–" if method == OFFSETS else spread(found[:, 1] / offsets - 1),
        f"{found[:, 2].mean():,.0f}",
        f"{found[:, 3].mean():.0f}",
    )


def spread(values: np.ndarray) -> str:
    """Return a mean with its 95 % interval; random halves overlap, so their spread alone would be too narrow."""
    if len(values) == 1:
        return f"{values[0]:+.1%}"
    reach = 1.96 * values.std(ddof=1) * np.sqrt(1 / len(values) + 1)
    return f"{values.mean():+.1%} ({values.mean() - reach:+.1%} … {values.mean() + reach:+.1%})"


def first_replay(nine: dict[str, dict[int, list[float]]]) -> str:
    """Return the table of the first eight splits beside what was found on them before."""
    lines = []
    for method, before in FIRST_REPLAY.items():
        found, raw, offsets = (np.array([nine[name][seed] for seed in range(8)]) for name in (method, RAW, OFFSETS))

        def with_error(base: np.ndarray, found: np.ndarray = found) -> str:
            gains = 100.0 * (found[:, 1] / base[:, 1] - 1.0)
            return f"{gains.mean():+.1f} ± {gains.std() / 8**0.5:.1f}"

        over = ("–" if method == RAW else with_error(raw), "–" if method in (RAW, OFFSETS) else with_error(offsets))
        figures = (f"{found[:, 0].mean():.6f}", *over, f"{found[:, 2].mean():,.0f}", f"{found[:, 3].mean():.0f}")
        lines.append((method, *(f"{new} ({old})" for new, old in zip(figures, before, strict=True))))
    head = ("bids from", "log-loss", "surplus over raw scores, %", "over offset per campaign, %", "spend", "clicks")
    return report.table(head, lines)


def main(full: bool) -> None:
    """Measure, and keep the section."""
    warnings.simplefilter("ignore")
    folder = real_folder() / "ipinyou"
    if not (folder / "nine_campaigns.parquet").exists():
        print("the auctions are not there: skipped")
        return
    splits, runs = 20, 1000
    with TemporaryDirectory() as made:
        nine, failed = nine_campaigns(pl.read_parquet(folder / "nine_campaigns.parquet"), splits, Path(made))
        one = pl.read_parquet(folder / "campaign2997.parquet")
        ordered = in_order(one, Path(made))
    lines = sorted((line_of(nine, method) for method in nine), key=lambda line: -line[0])
    lines = [line[1:] for line in lines]
    lines += [(method, reason, "–", "–", "–", "–") for method, reason in failed.items()]
    head = ("bids from", "log-loss", "surplus over raw scores", "over offset per campaign", "spend", "clicks")
    text = ["## Real ads\n", _SELECTED.format(splits=splits), report.table(head, lines)]
    if all(len(nine.get(method, ())) >= 8 for method in FIRST_REPLAY):
        text += ["\n" + _FIRST_REPLAY, first_replay(nine)]
    text.append("\n" + _IN_ORDER)
    y = one["label"].to_numpy()[-len(ordered[RAW]) :].astype(float)
    lines = []
    for factor, words in ((1.0, "break-even"), (2.0, "twice that")):
        found = replayed(one, ordered, factor)
        for method, outcome in sorted(found.outcomes.items(), key=lambda item: -item[1].surplus):
            gap = found.differences[method]
            over = "–" if method == OFFSET else f"{gap.value:+,.0f} ({gap.low:+,.0f} … {gap.high:+,.0f})"
            shown = (f"{loss(ordered[method], y):.6f}", f"{outcome.surplus:,.0f}", over, f"{outcome.spend:,.0f}")
            lines.append((words, method, *shown, f"{outcome.positives:.0f}"))
    text.append(report.table(("value", "bids from", "log-loss", "surplus", "over offset", "spend", "clicks"), lines))
    null, cost = calibrated(runs), carrying(20_000_000 if full else 2_000_000)
    first = real_folder() / "flights3m" / "test.parquet"
    listed = flights(first) if first.exists() else None
    text.append(
        f"\nCalibrated scores, {null['runs']:,} simulated logs: the action list is empty in {null['empty']:,}, and "
        f"over-bid plus under-bid money are {null['share']:.1%} of the naive figure (goals: 93 %, below 5 %)."
    )
    missed = "" if cost["time"] <= 1.3 else ", **time not met**"
    text.append(
        f"A sketch of {cost['rows']:,} rows of a Parquet file with values takes {cost['time']:.2f} times the time and "
        f"{cost['size']:.2f} times the space of one without (goal: 1.3{missed}): reading one more column takes "
        f"{cost['read']:.2f} of that. Of rows in memory it takes {cost['memory']:.2f} times the time."
    )
    trap = won_rows()
    lines = [f"{values.mean():+,.0f} ± {values.std(ddof=1) / len(values) ** 0.5:,.0f}" for values in trap.values()]
    text.append(
        f"The trap of won rows, {len(trap['naive'])} simulated worlds: bids from scores earn {lines[0].lstrip('+')}; a "
        f"fit on the rows they won adds {lines[1]}, below 0 in {(trap['naive'] < 0).sum()} of them; with the rows "
        f"weighted by inverse propensity {lines[2]}, above 0 in {(trap['weighted'] > 0).sum()}."
    )
    if listed is not None:
        text.append(
            f"On flights3m, {listed} of the first ten actions are among the ten field values with the largest rows × "
            "error beyond noise (goal: 8)."
        )
    report.keep("money", "\n".join(text), full, {"null": null, "cost": cost})


_SELECTED = """\
Bids = value per click × probability, replayed against the market prices of nine campaigns; a value is the break-even of
its campaign. Fits on half of the blocks, surplus on the other half, {splits} random splits; intervals (95 %) allow for
halves that overlap. How rows were selected: only blocks of 1,000 rows with at least one click were kept, so rates are
too high against the scores, by a factor that differs by campaign. Most of the gain over raw scores comes from that; the
honest comparison is with one offset per campaign (`offset-field`).
"""

_FIRST_REPLAY = """\
The first eight of these splits, beside (in brackets) what a script found on the same splits before there was a replay
here. ± is the standard error over splits, as that script had it: it tells how well the mean over random halves of these
very rows is known, and nothing about other auctions. The intervals above are wider, since halves overlap and the rows
are a sample.
"""

_IN_ORDER = """\
Campaign 2997, whole days in order, without such a selection: 60 blocks, each of the last 40 predicted from all before
it, refitted every two blocks. Differences of surplus with 95 % intervals from blocks.
"""
