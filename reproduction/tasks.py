"""A task: scored validation rows to calibrate on, scored test rows to judge on."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mcnet._shared.arrays import FloatArray
from mcnet._shared.files import whole_file
from mcnet.errors import InputError
from mcnet.rows.logs import open_log
from mcnet.sketch.sketch import Sketch

__all__ = ["MOST_TEST_ROWS", "Columns", "Features", "Sample", "Task", "read_rows", "read_tasks", "write_tasks"]

MOST_TEST_ROWS = 1_000_000
"""Studies that train much are judged on so many test rows, or on a little more."""


@dataclass(frozen=True)
class Features:
    """What a network may know of rows: numbers `[rows, n]` and category codes `[rows, m]`; may be memory-mapped."""

    numbers: NDArray[np.float32]
    categories: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: Any) -> "Features":
        """Return some of the rows."""
        return Features(self.numbers[rows], self.categories[rows])

    def places(self, known: Sequence[NDArray[np.int32]]) -> NDArray[np.int64]:
        """Return the place of each category among the known ones of its column, in order; -1 where it is unseen."""
        result = np.empty(self.categories.shape, dtype=np.int64)
        for i, ids in enumerate(known):
            place = np.minimum(np.searchsorted(ids, self.categories[:, i]), len(ids) - 1)
            result[:, i] = np.where(ids[place] == self.categories[:, i], place, -1)
        return result

    def half(self) -> "Features":
        """Return every second column of the numbers and of the categories, the first ones included."""
        return Features(self.numbers[:, ::2], self.categories[:, ::2])


@dataclass(frozen=True)
class Sample:
    """Scored rows; `truth` is known for simulated ones, `features` where the auxiliary network needs them."""

    score: FloatArray
    label: NDArray[np.int8]
    field: NDArray[np.int32]
    truth: FloatArray | None = None
    features: Features | None = None

    def __len__(self) -> int:
        return len(self.score)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """The rows by field value, and by score inside it; sorted once for all methods."""
        return np.lexsort((self.score, self.field))

    def take(self, rows: Any) -> "Sample":
        """Return some of the rows."""
        return Sample(
            self.score[rows],
            self.label[rows],
            self.field[rows],
            None if self.truth is None else self.truth[rows],
            None if self.features is None else self.features.take(rows),
        )


@dataclass(frozen=True)
class Task:
    """One label of one data set: `kind` is CTR, CVR or what the label is, `published` names the paper's columns.

    `share` is how many of the paper's rows there are: 2 epochs of the paper are 2 / share epochs of these rows.
    """

    data: str
    kind: str
    validation: Sample
    test: Sample
    published: str | None = None
    share: float = 1.0

    def printed_steps(self, epochs: int, batch: int) -> int:
        """Return how many steps so many epochs of the paper's rows have.

        >>> empty = Sample(np.zeros(0), np.zeros(0, np.int8), np.zeros(0, np.int32))
        >>> rows = Sample(np.zeros(3000), np.zeros(3000, np.int8), np.zeros(3000, np.int32))
        >>> Task("AliExpress", "CTR", rows, empty, share=0.5).printed_steps(2, 2048)
        6
        """
        return epochs * -(-round(len(self.validation) / self.share) // batch)

    def passes(self, epochs: int, batch: int) -> int:
        """Return how many passes through the rows here have about as many steps as so many epochs of the paper's."""
        return round(self.printed_steps(epochs, batch) / -(-len(self.validation) // batch))

    @property
    def name(self) -> str:
        """The task as the paper writes it."""
        return f"{self.kind} ({self.data})"

    @cached_property
    def sketch(self) -> Sketch:
        """The sketch of the validation rows, with the field."""
        part = self.validation
        return Sketch.from_rows(part.score, part.label, field=part.field)

    @cached_property
    def digest(self) -> str:
        """A digest of the name and the rows, by which fits to the same rows are found again."""
        found = hashlib.sha256(self.name.encode())
        for sample in (self.validation, self.test):
            features = () if sample.features is None else (sample.features.numbers, sample.features.categories)
            for column in (sample.score, sample.label, sample.field, sample.truth, *features):
                found.update(b"none" if column is None else np.ascontiguousarray(column).tobytes())
        return found.hexdigest()

    def with_both_classes(self, advice: str) -> "Task":
        """Return the task itself; raise InputError if a split has positives or negatives alone."""
        for split, sample in (("validation", self.validation), ("test", self.test)):
            positives = int(sample.label.sum())
            if positives in (0, len(sample)):
                raise InputError(
                    f"{self.name}: {positives:,} of {len(sample):,} {split} rows are positive, and nothing can be "
                    f"learned or compared; {advice}"
                )
        return self

    def first(self, rows: int) -> "Task":
        """Return the same task with only so many rows to calibrate on."""
        return replace(self, validation=self.validation.take(slice(0, rows)))

    def judged_on(self, rows: int) -> "Task":
        """Return the same task with every second, third … test row, if that leaves so many or more."""
        return replace(self, test=self.test.take(slice(None, None, max(1, len(self.test) // rows))))

    def scored(self, validation: FloatArray, test: FloatArray) -> "Task":
        """Return the same rows with other scores."""
        return replace(self, validation=replace(self.validation, score=validation), test=replace(self.test, score=test))


def write_tasks(tasks: list[Task], path: str | Path) -> Path:
    """Save scored rows as Parquet: task, split, score, label, field, and truth and features where known."""
    parts = []
    for task in tasks:
        for split, sample in (("validation", task.validation), ("test", task.test)):
            columns: dict[str, Any] = {"score": sample.score, "label": sample.label, "field": sample.field}
            if sample.truth is not None:
                columns["truth"] = sample.truth
            if sample.features is not None:
                columns |= {f"numerical_{i + 1}": column for i, column in enumerate(sample.features.numbers.T)}
                columns |= {f"categorical_{i + 1}": column for i, column in enumerate(sample.features.categories.T)}
            frame = pl.DataFrame(columns)
            parts.append(frame.select(pl.lit(task.kind).alias("task"), pl.lit(split).alias("split"), pl.all()))
    target = Path(path)
    with whole_file(target) as part:
        pl.concat(parts, how="diagonal").write_parquet(part)
    return target


@dataclass(frozen=True)
class Columns:
    """What the columns of somebody's rows are called: the score, its label (several for several tasks) and the field.

    A label may be written as sale/click: the label `sale` on the rows whose `click` is 1, as a conversion is counted
    among clicks. `split` says which rows are validation and which are test; without it, every second row, at random, is
    a test row. Without a `field`, the column `field` is taken.
    """

    score: tuple[str, ...] = ("score",)
    label: tuple[str, ...] = ("label",)
    field: str | None = None
    split: str | None = None

    def pairs(self) -> list[tuple[str, str]]:
        """Return score and label of each task; one score may serve all labels."""
        if len(self.score) not in (1, len(self.label)):
            raise InputError(
                f"there are {len(self.score)} scores and {len(self.label)} labels; give one score per label, or one"
            )
        scores = self.score * len(self.label) if len(self.score) == 1 else self.score
        return list(zip(scores, self.label, strict=True))


def read_rows(path: str | Path, columns: Columns, seed: int = 0) -> list[Task]:
    """Read scored rows with names of their own as tasks, one per label.

    Rows whose label is missing are left out of its task, and with a label such as sale/click those without a click.
    """
    lazy = open_log(path)
    known = lazy.collect_schema().names()
    labels = {text: [text] if text in known else text.split("/", 1) for text in columns.label}
    field = columns.field or "field"
    wanted = [*columns.score, *(name for names in labels.values() for name in names), field]
    wanted += [columns.split] if columns.split else []
    missing = [name for name in wanted if name not in known]
    if missing:
        hint = "; name another with --field" if missing[0] == field and columns.field is None else ""
        raise InputError(f"{path} has no column {missing[0]!r}; it has {', '.join(known[:12])}{hint}")
    frame = lazy.select(list(dict.fromkeys(wanted))).collect()
    split = frame[columns.split].cast(pl.String) if columns.split else _random_split(len(frame), seed)
    parts = []
    for score, text in columns.pairs():
        label, *given = labels[text]
        part = pl.DataFrame(
            {
                "row": range(len(frame)),
                "task": [text] * len(frame),
                "split": split,
                "score": frame[score],
                "label": _numbers(path, frame[label]),
                "field": frame[field].cast(pl.String),
            }
        )
        among = [_numbers(path, frame[name]) == 1.0 for name in given]
        parts.append(part.filter(pl.col("label").is_not_null(), *among))
    return _tasks(path, pl.concat(parts).lazy(), Path(path).name)


def _numbers(path: str | Path, column: pl.Series) -> pl.Series:
    """Return a column of labels as numbers, null where it is missing; refuse what is no number."""
    numbers = column.cast(pl.Float64, strict=False).fill_nan(None)
    texts = column.cast(pl.String)
    wrong = (numbers.is_null() & texts.is_not_null() & (texts != "NaN")).arg_true()
    if len(wrong):
        raise InputError(
            f"{path} has labels that are no numbers (first: row {wrong[0]}, {column.name} {column[wrong[0]]!r}); write "
            "them as 0 and 1"
        )
    return numbers


def _random_split(rows: int, seed: int) -> pl.Series:
    test = np.random.default_rng([seed, 97]).random(rows) < 0.5
    return pl.Series(np.where(test, "test", "validation"))


def read_tasks(path: str | Path, data: str = "your scores", published: str | None = None) -> list[Task]:
    """Read scored rows of any model: columns `split` (validation or test), `score`, `label`, `field`.

    A column `task` tells several labels apart, `truth` is the true probability, `numerical_*` and `categorical_*`
    are features for the auxiliary network.
    """
    lazy = open_log(path)
    known = lazy.collect_schema().names()
    missing = [name for name in ("split", "score", "label", "field") if name not in known]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r}; scores need split, score, label and field")
    return _tasks(path, lazy, data, published)


def _tasks(path: str | Path, lazy: pl.LazyFrame, data: str, published: str | None = None) -> list[Task]:
    known = lazy.collect_schema().names()
    frame = lazy.with_columns(_as_codes(lazy)).collect()
    splits = set(frame["split"].unique())
    if not {"validation", "test"} <= splits:
        raise InputError(f"{path}: split has {', '.join(sorted(map(str, splits)))}; it needs validation and test")
    _require_probabilities_and_labels(path, frame)
    kinds = frame["task"].unique(maintain_order=True).to_list() if "task" in known else [None]
    tasks = []
    for kind in kinds:
        rows = frame if kind is None else frame.filter(pl.col("task") == kind)
        parts = {split: _sample(rows.filter(pl.col("split") == split)) for split in ("validation", "test")}
        task = Task(data, kind or "CTR", parts["validation"], parts["test"], published)
        tasks.append(task.with_both_classes(f"both splits of {path} need rows with the labels 0 and 1"))
    return tasks


def _require_probabilities_and_labels(path: str | Path, frame: pl.DataFrame) -> None:
    score, label = (frame[name].cast(pl.Float64, strict=False) for name in ("score", "label"))
    for values, allowed, problem in (
        (score, score.is_between(0.0, 1.0), "scores that are missing or outside [0, 1]; the study takes probabilities"),
        (label, label.is_in([0.0, 1.0]), "labels other than 0 and 1"),
    ):
        wrong = (~allowed.fill_null(False)).arg_true()
        if len(wrong):
            row = frame["row"][wrong[0]] if "row" in frame.columns else wrong[0]
            raise InputError(f"{path} has {problem} (first: row {row}, {values.name} {frame[values.name][wrong[0]]})")


def _as_codes(lazy: pl.LazyFrame) -> pl.Expr:
    # Field values become numbers in the order of their text, the same in both splits.
    values = lazy.select(pl.col("field").cast(pl.String).fill_null("")).unique().collect()["field"].sort()
    return (
        pl.col("field").cast(pl.String).fill_null("").replace_strict(values, range(len(values)), return_dtype=pl.Int32)
    )


def _sample(frame: pl.DataFrame) -> Sample:
    def column(name: str) -> NDArray[Any]:
        found: NDArray[Any] = frame[name].to_numpy()
        return found

    numbers = [name for name in frame.columns if name.startswith("numerical_") and frame[name].null_count() == 0]
    categories = [name for name in frame.columns if name.startswith("categorical_") and frame[name].null_count() == 0]
    features = None
    if numbers or categories:
        features = Features(
            np.ascontiguousarray(frame.select(numbers).to_numpy().astype(np.float32).reshape(len(frame), -1)),
            np.ascontiguousarray(frame.select(categories).to_numpy().astype(np.int32).reshape(len(frame), -1)),
        )
    truth = column("truth").astype(np.float64) if "truth" in frame.columns and not frame["truth"].null_count() else None
    return Sample(column("score").astype(np.float64), column("label").astype(np.int8), column("field"), truth, features)
