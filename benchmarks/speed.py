"""Fit and predict times, one-row latency, memory and file size, of mcnet and its peers on the same rows."""

from benchmarks import report
from benchmarks.data import simulated_files
from benchmarks.methods import NEEDS_FIELD, PEER_METHODS, ranked
from benchmarks.peers.calling import Job, recall, run

VALUES = (0, 4, 200)
# net:cal sorts and copies at length; beyond this it is shown as not tried.
CAPS = {"netcal": 100_000}


def jobs_of(sizes: tuple[int, ...], cap: dict[str, int]) -> list[Job]:
    found = []
    for rows in sizes:
        for values in VALUES:
            fit, test = simulated_files(rows, max(values, 1), 0, min(rows, 1_000_000))
            for (peer, method), with_field in PEER_METHODS.items():
                if (values and not with_field) or (not values and (peer, method) in NEEDS_FIELD):
                    continue
                job = Job(peer, method, fit, test, rows, ("field",) if values else (), 3, True, {"values": values})
                if rows > cap.get(peer, rows):
                    job.answer = {"failed": "beyond its cap"}
                found.append(job)
    return found


def main(full: bool = False) -> None:
    sizes = tuple(10**power for power in range(4, 9 if full else 8))
    jobs = jobs_of(sizes, {} if full else CAPS)

    def save() -> None:
        answered = [job for job in jobs if job.answer]
        report.keep("speed", _section(answered, sizes), full, [job.plain() for job in answered])

    run(recall(jobs, report.KEPT / "speed.json"), 3600.0 if full else 75.0, None, save)


def _section(jobs: list[Job], sizes: tuple[int, ...]) -> str:
    jobs = [job for job in jobs if job.answer]
    parts = ["## Speed: mcnet and its peers on the same rows"]
    for values in VALUES:
        chosen = [job for job in jobs if job.tags["values"] == values]
        title = f"{values} field values" if values else "no field"
        finished = {job.name for job in chosen if not job.failed}
        chosen = [job for job in chosen if job.name in finished or job.failed != "beyond its cap"]
        parts.append(f"### {title}\n\n{_fit_table(chosen, sizes)}\n\n{_costs(chosen, sizes)}")
        lines: dict[str, list[tuple[float, float]]] = {}
        for job in chosen:
            if not job.failed:
                lines.setdefault(job.name, []).append((job.rows, max(job.answer["fit"], 1e-5)))
        if lines:
            parts.append(report.plot(f"fit-{values}", f"Fit time against rows, {title}", lines))
    return "\n\n".join(parts)


def _by(jobs: list[Job]) -> dict[str, dict[int, Job]]:
    found: dict[str, dict[int, Job]] = {}
    for job in jobs:
        found.setdefault(job.name, {})[job.rows] = job
    return found


def _fit_table(jobs: list[Job], sizes: tuple[int, ...]) -> str:
    named = _by(jobs)
    ours = named.get("mcnet-bayes", {})
    lines = []
    for name, runs in named.items():
        cells = []
        for rows in sizes:
            job, own = runs.get(rows), ours.get(rows)
            if job is None:
                cells.append("—")
            elif job.failed:
                cells.append(job.failed)
            elif name == "mcnet-bayes" or own is None or own.failed:
                cells.append(report.seconds(job.answer["fit"]))
            else:
                cells.append(f"{report.seconds(job.answer['fit'])} ({job.answer['fit'] / own.answer['fit']:.2g}×)")
        lines.append([name, *cells])
    head = ["fit (time ÷ mcnet's)", *(f"{rows:,} rows" for rows in sizes)]
    said = [f"- fit, {rows:,} rows: {_rank(named, rows, 'fit')}." for rows in sizes]
    return report.table(head, lines) + "\n\n" + "\n".join(said)


def _rank(named: dict[str, dict[int, Job]], rows: int, what: str) -> str:
    return ranked(
        {name: runs[rows].answer[what] for name, runs in named.items() if rows in runs and not runs[rows].failed}
    )


def _costs(jobs: list[Job], sizes: tuple[int, ...]) -> str:
    """Predict, latency, memory and file size at the largest size that a method finished."""
    named = _by(jobs)
    ours = named.get("mcnet-bayes", {})
    lines = []
    for name, runs in named.items():
        done = [rows for rows in sizes if rows in runs and not runs[rows].failed]
        if not done:
            continue
        own, answer = ours.get(done[-1]), runs[done[-1]].answer
        versus = (
            {what: answer[what] / own.answer[what] for what in ("predict", "latency")} if own and not own.failed else {}
        )
        per_row, one = (
            f"{report.seconds(answer[what])}" + (f" ({versus[what]:.2g}×)" if versus and name != "mcnet-bayes" else "")
            for what in ("predict", "latency")
        )
        lines.append([name, f"{done[-1]:,}", per_row, one, f"{answer['memory']:.0f} MB", report.size(answer["bytes"])])
    head = [
        "at its largest size",
        "rows",
        "predict a row (÷ mcnet's)",
        "one row (÷ mcnet's)",
        "memory of a fit",
        "file",
    ]
    largest = max((rows for rows in sizes if rows in ours and not ours[rows].failed), default=sizes[0])
    said = [f"- {word}, {largest:,} rows: {_rank(named, largest, what)}." for word, what in _SAID]
    return report.table(head, lines) + "\n\n" + "\n".join(said)


_SAID = (("predict", "predict"), ("one row", "latency"), ("memory of a fit", "memory"))
