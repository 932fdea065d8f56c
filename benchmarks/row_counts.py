"""Fit time against rows, scan of the Parquet file included, beside scikit-learn's isotonic fit in memory."""

from sklearn.isotonic import IsotonicRegression

import mcnet
from benchmarks import report
from benchmarks.measure import click_log_file, cpu_time, warm_up


def isotonic(path: object) -> float:
    import polars as pl

    rows = pl.read_parquet(path, columns=["score", "label"])
    scores, labels = rows["score"].to_numpy(), rows["label"].to_numpy()
    return cpu_time(lambda: IsotonicRegression(out_of_bounds="clip").fit(scores, labels))[0]


def main(full: bool = False) -> None:
    warm_up()
    sizes = (1_000_000, 10_000_000, 50_000_000, 100_000_000) if full else (1_000_000, 10_000_000)
    lines, fits, plotted = [], [], {"mcnet, scan included": [], "scikit-learn isotonic": []}
    for rows in sizes:
        path = click_log_file(rows)
        scanned, sketch = cpu_time(lambda path=path: mcnet.scan(path, score="score", label="label", field="country"), 2)
        fitted, _ = cpu_time(lambda sketch=sketch: mcnet.BayesMCNet().fit_sketch(sketch), 3)
        peer = isotonic(path)
        fits.append(fitted)
        plotted["mcnet, scan included"].append((rows, scanned + fitted))
        plotted["scikit-learn isotonic"].append((rows, peer))
        ratio = peer / (scanned + fitted)
        said = f"{ratio:.2f}×" if ratio >= 1 else f"{ratio:.2f}×: **mcnet is slower**"
        lines.append([f"{rows:,}", f"{scanned:.2f} s", f"{fitted:.2f} s", f"{peer:.2f} s", said])
        print(lines[-1], flush=True)
    head = ["rows", "scan", "fit on the sketch", "scikit-learn isotonic, in memory", "isotonic ÷ (scan + fit)"]
    text = (
        "## Fit time against rows\n\nBayesMCNet, four field values, from a Parquet file; isotonic regression "
        f"gets the same rows in memory and no field.\n\n{report.table(head, lines)}\n\nThe fit itself varies between "
        f"{min(fits):.2f} and {max(fits):.2f} s over the sizes.\n\n"
        + report.plot("rows", "Scan and fit against rows", plotted)
    )
    report.keep("row_counts", text, full)
