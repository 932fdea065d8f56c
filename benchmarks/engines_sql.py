"""Engines that have the rows: the sketch query in DuckDB, against DuckDB's own group-by on the same file."""

import time
from typing import Any

import mcnet
from benchmarks import report
from benchmarks.measure import click_log_file, machine

ROWS = 50_000_000
COLUMNS = {"score": "score", "label": "label", "field": "country"}
THREADS = 2
SUMS = "count(*), sum(label), sum(score)"


def measured(connection: Any, queries: dict[str, str], repeats: int) -> dict[str, dict[str, float]]:
    """Return the least CPU and wall seconds of each query, run in turn so that a busy moment strikes all alike."""
    least = {name: {"cpu": float("inf"), "wall": float("inf")} for name in queries}
    for _ in range(repeats):
        for name, query in queries.items():
            wall, cpu = time.perf_counter(), time.process_time()
            connection.sql(query).to_arrow_table()
            found = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
            least[name] = {what: min(value, found[what]) for what, value in least[name].items()}
    return least


def main(full: bool) -> None:
    """Measure, print, and keep the section of the page."""
    import duckdb

    rows, repeats = (ROWS, 5) if full else (ROWS // 10, 5)
    log = click_log_file(rows)
    expected = mcnet.scan(log, **COLUMNS)
    rounded = "round(score, 4)"
    queries = {
        "group by country and round(score, 4)": f"SELECT country, {rounded}, {SUMS} FROM log GROUP BY 1, 2",
        "group by country and floor(512 · logit)": "SELECT country, floor(512 * ln(score / (1 - score))) AS cell, "
        f"{SUMS} FROM log GROUP BY country, cell",
        "sketch": mcnet.sketch_query("log", dialect="duckdb", **COLUMNS),
    }
    with duckdb.connect(config={"threads": THREADS}) as connection:
        connection.execute(f"CREATE VIEW log AS SELECT * FROM '{log}'")
        times = measured(connection, queries, repeats)
        equal = mcnet.Sketch.from_table(connection.sql(queries["sketch"])) == expected
    first = times[next(iter(queries))]
    lines = [
        [name, report.seconds(found["cpu"]), f"{found['cpu'] / first['cpu']:.2f}", report.seconds(found["wall"])]
        for name, found in times.items()
    ]
    text = "\n\n".join(
        [
            f"## Engines: DuckDB\n\n{rows:,} rows in one Parquet file, one field of 4 values, {THREADS} threads, the "
            f"least of {repeats}. {machine(load=False)}, DuckDB {duckdb.__version__}.",
            report.table(["query", "CPU", "ratio", "wall"], lines),
            f"The sketch is {'equal' if equal else '**not equal**'} to that of `mcnet.scan`, bit for bit: "
            f"{len(expected):,} cells.",
        ]
    )
    print(text)
    report.keep("engines_sql", text, full, {"rows": rows, "times": times, "equal": equal})


if __name__ == "__main__":
    main(full=False)
