"""Log-loss on the real sets: fitted on one random half, judged on the other; the time splits; two fields at once."""

import tempfile

import numpy as np

from benchmarks import data, report
from benchmarks.methods import NETWORKS, OWN_METHODS, PEER_METHODS, ranked
from benchmarks.peers.calling import Job, run

RIVALS = ("mcgrad: default", "mcgrad: monotone")
WITH_PERIODS = "mcnet-bayes, days known"


def losses(path: object, p: np.ndarray) -> np.ndarray:
    """Return the log-loss of every row."""
    y, q = data.labels(path), np.clip(p, 1e-7, 1 - 1e-7)
    return -(y * np.log(q) + (1 - y) * np.log1p(-q))


def violations(path: object, fields: tuple[str, ...], p: np.ndarray) -> int:
    """Return how many neighbours, sorted by score inside a context, have falling predictions."""
    import polars as pl

    names = list(fields) or [pl.lit(0).alias("context")]
    table = pl.read_parquet(path, columns=["score", *fields]).with_columns(p=pl.Series(p))
    table = table.sort([*fields, "score", "p"])
    fallen = pl.col("p").diff().over(names) < -1e-12
    return int(table.select((fallen & (pl.col("score").diff().over(names) > 0)).sum()).item())


def with_periods(fit: object, test: object) -> np.ndarray:
    """Return the losses of BayesMCNet when it is told which rows are of the same day."""
    import polars as pl

    import mcnet

    with tempfile.TemporaryDirectory() as folder:
        journal = mcnet.Journal(folder + "/ads.db")
        journal.add_files(fit, score="score", label="label", field="field", time="ts", every="1d")
        model = mcnet.BayesMCNet().fit_journal(journal)
    rows = pl.read_parquet(test, columns=["score", "field"])
    return losses(test, model.predict(rows["score"], rows["field"]))


def main(full: bool = False) -> None:
    kept: dict[tuple[str, str, str], np.ndarray] = {}
    jobs: list[Job] = []
    for name in data.REAL:
        for split in ("_rand", ""):
            files = data.real_files(name, split)
            if files is None:
                continue
            rows = len(data.labels(files[0]))
            if not split:
                kept[name, split, WITH_PERIODS] = with_periods(*files)
            for key, with_field in (PEER_METHODS | OWN_METHODS).items():
                slow = key in NETWORKS or key[0] in ("mcgrad", "probcal")
                if (key in NETWORKS and not full) or (slow and split == "" and not full):
                    continue
                job = Job(*key, *files, rows, ("field",) if with_field else ())
                job.tags = {"set": name, "split": split, "fields": "field" if with_field else "none"}
                jobs.append(job)
            for fields in (("field2",), ("field", "field2")) if full or split else ():
                job = Job("mcnet", "mcnet-bayes", *files, rows, fields)
                job.tags = {"set": name, "split": split, "fields": " + ".join(fields)}
                jobs.append(job)

    def judge(job: Job) -> None:
        loss = losses(job.test, job.answer["p"])
        kept[job.tags["set"], job.tags["split"], _label(job)] = loss
        job.answer["loss"] = float(loss.mean())
        job.answer["violations"] = violations(job.test, job.fields, job.answer["p"])

    if not jobs:
        print("  no real set is here: this section is left out")
        return

    def save() -> None:
        done = [job for job in jobs if job.answer]
        report.keep("real", _section(done, kept), full, [job.plain() for job in done])

    run(jobs, 7200.0 if full else 240.0, judge, save)


def _section(jobs: list[Job], kept: dict[tuple[str, str, str], np.ndarray]) -> str:
    parts = [
        "## Quality: real data",
        "Calibrated on `val`, judged on `test`. In the random halves both come from the same period; earlier to later "
        "shows drift and has no threshold. Δ is the paired difference of log-loss, mcnet-bayes minus the other, "
        "with its standard error: below zero, mcnet-bayes is better. Falls counts neighbouring test rows of one "
        "context whose order is broken.",
    ]
    for name in data.REAL:
        for split in ("_rand", ""):
            chosen = [job for job in jobs if (job.tags["set"], job.tags["split"]) == (name, split)]
            if chosen:
                title = f"### {name}, {'random halves' if split else 'earlier to later, no threshold'}"
                parts.append(f"{title}\n\n{_table(chosen, kept)}")
    return "\n\n".join(parts)


def _label(job: Job) -> str:
    return f"mcnet-bayes, {job.tags['fields']}" if "2" in job.tags["fields"] else job.name


def _paired(kept: dict[tuple[str, str, str], np.ndarray], key: tuple[str, str], name: str, rival: str) -> str:
    ours, theirs = kept.get((*key, name)), kept.get((*key, rival))
    if ours is None or theirs is None or name == rival:
        return "—"
    difference = ours - theirs
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return f"{1e5 * difference.mean():+.1f} ± {1e5 * error:.1f}"


def _table(jobs: list[Job], kept: dict[tuple[str, str, str], np.ndarray]) -> str:
    key = (jobs[0].tags["set"], jobs[0].tags["split"])
    ours = next((job for job in jobs if _label(job) == "mcnet-bayes" and not job.failed), None)
    lines = []
    for job in sorted(jobs, key=lambda job: job.answer.get("loss", np.inf)):
        if job.failed:
            lines.append([_label(job), job.failed, "—", "—", "—"])
            continue
        ratio = f" ({job.answer['fit'] / ours.answer['fit']:.2g}×)" if ours else ""
        lines.append(
            [
                _label(job),
                f"{job.answer['loss']:.5f}",
                _paired(kept, key, "mcnet-bayes", _label(job)),
                report.seconds(job.answer["fit"]) + ratio,
                job.answer["violations"],
            ]
        )
    head = ["method", "log-loss", "Δ × 10⁻⁵ (mcnet-bayes − it)", "fit (÷ mcnet-bayes's)", "falls"]
    single = {_label(job): job.answer["loss"] for job in jobs if not job.failed and "2" not in job.tags["fields"]}
    said = [f"- log-loss, one field: {ranked(single, differences=True)}."]
    for rival in RIVALS:
        if (*key, rival) in kept:
            said.append(f"- against {rival}: Δ = {_paired(kept, key, 'mcnet-bayes', rival)} (× 10⁻⁵).")
    if (*key, WITH_PERIODS) in kept:
        told = f"- mcnet-bayes told which rows are of one day (`--time`): {kept[(*key, WITH_PERIODS)].mean():.5f}"
        said.append(
            told + "".join(f", {name} {single[name]:.5f}" for name in ("mcnet: platt",) if name in single) + "."
        )
    two = next((job for job in jobs if _label(job) == "mcnet-bayes, field + field2" and not job.failed), None)
    if two:
        alone = [
            job.answer["loss"]
            for job in jobs
            if _label(job) in ("mcnet-bayes", "mcnet-bayes, field2") and not job.failed
        ]
        better = "better" if two.answer["loss"] < min(alone) else "**not better**"
        said.append(f"- two fields together: {two.answer['loss']:.5f}, {better} than either alone ({min(alone):.5f}).")
    return report.table(head, lines) + "\n\n" + "\n".join(said)
