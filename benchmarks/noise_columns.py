"""Columns of noise beside the fields of the flights: what they cost on the other half of the rows."""

import numpy as np
import polars as pl

import mcnet
from benchmarks import data, report
from benchmarks.real import losses

FIELDS = {"nycflights13": (("field",), ("field", "field2")), "flights3m": (("field",),)}
FIELDS_OF_FULL = {"flights3m": (("field", "field2"),)}
NOISE = {"one of 30 values": (30,), "one of 300 values": (300,), "ten": (2, 3, 5, 10, 20, 30, 50, 100, 200, 300)}
SEEDS = 5


def costs(name: str, fields: tuple[str, ...]) -> list[list[str]]:
    """Return by how much columns of noise raise the log-loss of a fit, and how many of them it keeps."""
    files = data.real_files(name, "_rand")
    if files is None:
        return []
    fit, test = (pl.read_parquet(path) for path in files)

    def loss(noise: dict[str, int], seed: int) -> tuple[float, int]:
        draw, rows = np.random.default_rng(seed), []
        for table in (fit, test):
            drawn = {column: draw.integers(0, size, len(table)) for column, size in noise.items()}
            rows.append(table.with_columns(**{c: pl.Series(codes).cast(pl.String) for c, codes in drawn.items()}))
        sketch = mcnet.scan(rows[0], score="score", label="label", field=[*fields, *noise])
        model = mcnet.BayesMCNet().fit_sketch(sketch).model_
        p = model.predict(test["score"].to_numpy(), {column: rows[1][column] for column in model.needed_fields})
        return float(losses(files[1], p).mean()), len(set(model.needed_fields) & set(noise))

    without, _ = loss({}, 0)
    lines = []
    for what, sizes in NOISE.items():
        noise = {f"noise {index}": size for index, size in enumerate(sizes)}
        found = [loss(noise, 100 * len(sizes) + sizes[0] + seed) for seed in range(SEEDS)]
        more = [cost - without for cost, _ in found]
        kept = f"{sum(number for _, number in found)} of {len(sizes) * SEEDS}"
        lines.append([name, " + ".join(fields), what, f"{np.mean(more):.6f}", f"{max(more):.6f}", kept])
    return lines


def main(full: bool = False) -> None:
    """Measure all sets, and keep the table."""
    lines = []
    for name, choices in FIELDS.items():
        for fields in (*choices, *(FIELDS_OF_FULL.get(name, ()) if full else ())):
            lines += costs(name, fields)
    head = ["set", "fields", "columns of noise", "log-loss more, mean", "largest", "kept"]
    about = (
        f"Columns of random values beside the fields of mcnet-bayes, {SEEDS} draws. Fitted on one random half, judged "
        "on the other, against the same fit without them. A column that is kept is one that the fit did not leave out."
    )
    if lines:
        report.keep("noise_columns", f"## Columns of noise\n\n{about}\n\n{report.table(head, lines)}", full)
