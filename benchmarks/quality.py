"""Distance to the known truth on the simulator: sizes × fields × seeds, mcnet against its registry and its peers."""

import numpy as np

from benchmarks import data, report
from benchmarks.methods import NETWORKS, OWN_METHODS, PEER_METHODS, ranked
from benchmarks.peers.calling import Job, recall, run
from mcnet.metrics import kl_to_truth

SIZES = (5_000, 20_000, 100_000, 1_000_000)
CLASSICAL = (
    "scikit-learn: isotonic",
    "scikit-learn: isotonic per field",
    "scikit-learn: logistic + field",
    "scikit-learn: sigmoid",
    "scikit-learn: temperature",
    "betacal: beta",
    "probcal: segmented beta",
    "mcnet: isotonic",
    "mcnet: platt",
    "mcnet: beta",
    "mcnet: histogram",
    "mcnet: sir",
    "mcnet: gaussian",
    "mcnet: gamma",
    "mcnet: platt-field",
    "mcnet: per-field",
)


SEEDS = 5
# Title and options of the truths: the simulator's own, and one whose curves bend more than twice as much.
TRUTHS = {
    (4, "usual"): "4 field values",
    (200, "usual"): "200 field values",
    (4, "bent"): "4 field values, strongly bent truths",
}
SLOW = {("mcnet", "adacalib")}
# What takes long is not asked about the bent truths.
PATIENT = {("mcgrad", "default"), ("mcgrad", "monotone"), ("probcal", "segmented spline")} | NETWORKS


def judge(job: Job) -> None:
    p = np.clip(job.answer["p"], 1e-7, 1 - 1e-7)
    job.answer["kl"] = kl_to_truth(p, data.truth(job.test)).value


def main(full: bool = False) -> None:
    methods = {name: field for name, field in (PEER_METHODS | OWN_METHODS).items() if full or name not in SLOW}
    jobs = []
    for values, truth in TRUTHS:
        for rows in SIZES:
            for seed in range(SEEDS):
                fit, test = data.simulated_files(rows, values, seed, bent=truth == "bent")
                for key, with_field in methods.items():
                    if truth == "bent" and key in PATIENT and not full:
                        continue
                    fields = ("field",) if with_field else ()
                    tags = {"values": values, "truth": truth, "seed": seed}
                    jobs.append(Job(*key, fit, test, rows, fields, tags=tags))

    def save() -> None:
        answered = [job for job in jobs if job.answer]
        report.keep("quality", _section(answered), full, [job.plain() for job in answered])

    run(recall(jobs, report.KEPT / "quality.json"), 3600.0 if full else 60.0, judge, save)


def _section(jobs: list[Job]) -> str:
    parts = [
        "## Quality: distance to the known truth",
        f"KL divergence to the truth × 10⁻⁵ on 100,000 fresh rows, mean ± standard error over {SEEDS} seeds. "
        "Predictions of exactly 0 or 1 are moved inside by 10⁻⁷, or their divergence would be infinite.",
    ]
    for (values, truth), title in TRUTHS.items():
        chosen = [job for job in jobs if (job.tags["values"], job.tags["truth"]) == (values, truth)]
        if chosen:
            parts.append(f"### {title}\n\n" + _table(chosen))
    return "\n\n".join(parts)


def _table(jobs: list[Job]) -> str:
    found: dict[str, dict[int, list[Job]]] = {}
    for job in jobs:
        found.setdefault(job.name, {}).setdefault(job.rows, []).append(job)
    means: dict[int, dict[str, float]] = {rows: {} for rows in SIZES}
    expected = {rows: max(len(runs.get(rows, [])) for runs in found.values()) for rows in SIZES}
    lines = []
    for name, runs in found.items():
        cells = []
        for rows in SIZES:
            figures = [1e5 * job.answer["kl"] for job in runs.get(rows, []) if not job.failed]
            missing = [job.failed for job in runs.get(rows, []) if job.failed]
            if missing or len(figures) < expected[rows]:  # means over fewer seeds would not compare
                cells.append(str(missing[0]) if missing else "—")
                continue
            means[rows][name] = float(np.mean(figures))
            error = f" ± {np.std(figures, ddof=1) / np.sqrt(len(figures)):.2g}" if len(figures) > 1 else ""
            cells.append(f"{np.mean(figures):.3g}{error}")
        lines.append([name, *cells])
    lines.sort(key=lambda line: means[SIZES[1]].get(line[0], np.inf))
    said = []
    for rows in SIZES:
        classical = {name: means[rows][name] for name in CLASSICAL if name in means[rows]}
        if not classical or "mcnet-bayes" not in means[rows]:
            continue
        best = min(classical, key=classical.__getitem__)
        ratio = means[rows].get("mcnet-bayes", np.nan) / classical[best]
        said.append(f"- {rows:,} rows: {ranked(means[rows])}; mcnet ÷ best classical ({best}) = {ratio:.2f}.")
    return report.table(["KL × 10⁻⁵", *(f"{rows:,} rows" for rows in SIZES)], lines) + "\n\n" + "\n".join(said)
