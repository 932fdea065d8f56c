"""Run the benchmarks: `python -m benchmarks [--full] [part …]`; the figures go to benchmarks/RESULTS.md."""

import argparse
import os
import time
from importlib import import_module

# Every library counts its threads when it is imported: one each, for mcnet as for its peers.
for _name in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
    os.environ.setdefault(f"{_name}_NUM_THREADS", "1")
os.environ.setdefault("POLARS_MAX_THREADS", "1")

# In the order of the page: what each part is, and whether the quick form runs it unasked.
PARTS = {
    "real": ("real data against the peers", True),
    "fields": ("real data with one, two and four fields, against the peers with the same columns", True),
    "noise_columns": ("columns of noise beside the fields of real data: what they cost", True),
    "money": ("money on real auctions, and on calibrated scores", True),
    "quality": ("distance to the known truth against the peers", True),
    "which_method": ("the distance to the known truth by positives and field values", True),
    "do_no_harm": ("small fits: the share that is worse than the raw scores, against the peers", True),
    "few_positives": ("log-loss over the raw scores with few positives", True),
    "bayes_shapes": ("BayesMCNet's shapes, and the networks, against the known truth", True),
    "speed": ("time and memory against the peers", True),
    "literal": ("the paper taken literally against the default fit", True),
    "row_counts": ("fit time against rows, scan included", True),
    "truths": ("BayesMCNet against isotonic at 3 M rows", True),
    "theorem": ("random truths: the error goes to the noise", True),
    "balance": ("the balance term", True),
    "time_streams": ("streams in time: the tracker against fixed memories and peers that adapt", True),
    "time_worlds": ("simulated worlds that change: the tracker against a static fit and an oracle", True),
    "time_poison": ("broken hours in the loop: what is served after them; real changes of the level", True),
    "time_parts": ("worlds that move in parts: the error of each field value, period by period", True),
    "time_hours": ("a year of hours: journal and backtest, time and memory", True),
    "coverage": ("coverage of 90 % intervals over several kinds of truth", True),
    "monitoring": ("the monitor's false alarms and delay", True),
    "many_contexts": ("thousands of contexts", True),
    "service": ("the service: requests per second, bulk, reloads (needs wrk)", True),
    "service_attacks": ("the service under attack: kills, fuzzed requests", True),
    "store": ("feedback into a store, beside a loop that only commits", True),
    "compiled": ("the compiled curve against the exact model", True),
    "growth": ("how time and memory grow", True),
    "hot_loops": ("evaluating and sketching against a copy and a count", True),
    "export_c": ("the C header", True),
    "several_fields": ("models of one, two and four fields: sizes of exports, predict, C; the tracker", True),
    "instructions": ("instructions a score in C", True),
    "engines": ("sketching in Spark against its own group-by (needs Java)", False),
    "engines_partitions": ("sketching in Spark by the number of partitions (needs Java)", False),
    "engines_apply": ("calibrating in Spark against its own writing (needs Java)", False),
    "engines_sql": ("the sketch query in DuckDB against its own group-by", True),
    "engines_capacity": ("the driver's memory per cell, and a coarser grid", True),
    "foundation": ("sketching, predicting, starting", False),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="part",
        help="; ".join(f"{n}: {t}" for n, (t, _) in PARTS.items()).replace("%", "%%"),
    )
    parser.add_argument("--full", action="store_true", help="all sizes and seeds: hours instead of minutes")
    parser.add_argument(
        "--limit", type=float, help="CPU seconds a method may take; 0 with --resume: only rewrite the page"
    )
    parser.add_argument("--together", type=int, default=1, help="how many methods of peers run at once")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="quality, speed, fields, do_no_harm: keep what an earlier run has measured",
    )
    given = parser.parse_args()
    unknown = [part for part in given.parts if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")

    from benchmarks import goals, report
    from benchmarks.measure import machine
    from benchmarks.peers import calling

    calling.LIMIT, calling.TOGETHER, calling.RESUME = given.limit, given.together, given.resume
    print(machine())
    for part in given.parts or [name for name, (_, quick) in PARTS.items() if quick or given.full]:
        begin = time.perf_counter()
        print(f"== {part}: {PARTS[part][0]} ==", flush=True)
        import_module(f"benchmarks.{part}").main(given.full)
        print(f"   {time.perf_counter() - begin:.0f} s", flush=True)
        report.write_page(list(PARTS), goals.section)


if __name__ == "__main__":
    main()
