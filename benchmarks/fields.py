"""Fields: log-loss on random halves of the flights with one, two and four fields, and peers with the same columns."""

from pathlib import Path

from benchmarks import data, report
from benchmarks.measure import DATA
from benchmarks.peers.calling import Job, recall, run
from benchmarks.real import losses, violations

CHOICES = {
    "one": ("field",),
    "two": ("field", "field2"),
    "with hour and weekday": ("field", "field2", "hour", "weekday"),
    "joined, with hour and weekday": ("route", "hour", "weekday"),
}
ALL = CHOICES["with hour and weekday"]
PEERS = (("lightgbm", "monotone"), ("scikit-learn", "logistic + field"), ("mcgrad", "default"), ("mcgrad", "monotone"))
SMALL = "nycflights13"
"""MCGrad takes hours on the larger set: the quick form leaves it out there."""


def with_clock(path: Path, name: str) -> Path:
    """Return a copy of a file that has the hour and the weekday of its timestamps as strings, and its fields as one."""
    import polars as pl

    target = DATA / "fields" / f"{name}-joined-{path.name}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        clock = pl.col("ts").dt
        rows = pl.read_parquet(path).with_columns(
            hour=clock.hour().cast(pl.String),
            weekday=clock.weekday().cast(pl.String),
            route=pl.concat_str("field", "field2", separator=" "),
        )
        rows.write_parquet(target)
    return target


def main(full: bool = False) -> None:
    jobs: list[Job] = []
    for name in data.REAL:
        files = data.real_files(name, "_rand")
        if files is None:
            continue
        fit, test = (with_clock(path, name) for path in files)
        rows = len(data.labels(fit))
        for choice, fields in CHOICES.items():
            jobs.append(Job("mcnet", "mcnet-bayes", fit, test, rows, fields, tags={"set": name, "fields": choice}))
        for peer, method in PEERS:
            if full or name == SMALL or peer != "mcgrad":
                tags = {"set": name, "fields": "with hour and weekday"}
                jobs.append(Job(peer, method, fit, test, rows, ALL, warm=False, tags=tags))
    if not jobs:
        print("  no real set is here: this section is left out")
        return

    def judge(job: Job) -> None:
        job.answer["loss"] = float(losses(job.test, job.answer["p"]).mean())
        job.answer["violations"] = violations(job.test, job.fields, job.answer["p"])

    def save() -> None:
        done = [job for job in jobs if job.answer]
        report.keep("fields", _section(done), full, [job.plain() for job in done])

    run(recall(jobs, report.KEPT / "fields.json"), 7200.0 if full else 600.0, judge, save)


def _section(jobs: list[Job]) -> str:
    parts = [
        "## Fields: the same rows with more columns",
        "Fitted on one random half, judged on the other. `field` is the airline (nycflights13) or the airport of "
        "departure (flights3m), `field2` the destination, route both as one value; hour and weekday are those of `ts`. "
        "Fit is in CPU seconds of one thread. Falls: neighbouring test rows of one context whose order is broken.",
    ]
    for name in data.REAL:
        chosen = [job for job in jobs if job.tags["set"] == name]
        if not chosen:
            continue
        lines = [
            [
                job.name,
                " + ".join(job.fields),
                job.failed or f"{job.answer['loss']:.5f}",
                "—" if job.failed else report.seconds(job.answer["fit"]),
                "—" if job.failed else job.answer["violations"],
            ]
            for job in chosen
        ]
        head = ["method", "fields", "log-loss", "fit", "falls"]
        parts.append(f"### {name}, fields\n\n{report.table(head, lines)}")
    return "\n\n".join(parts)
