"""Trainings kept as they finish, so that a study that was interrupted goes on where it was."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mcnet
from mcnet._shared.arrays import FloatArray
from mcnet._shared.files import checksum, write_json
from mcnet.version import __version__
from reproduction.literal import Forces, LiteralRecipe, literal_settings
from reproduction.settings import Settings
from reproduction.tasks import Task
from reproduction.trials import Trained, Trial

__all__ = ["KeptTrainings", "Look", "Training"]


@dataclass(frozen=True)
class Look:
    """A fit after some epochs: its trial and, of a literal one, the PCOC of each bin on the fitted rows."""

    trial: Trial
    bins: FloatArray


@dataclass(frozen=True)
class Training:
    """What was seen of a training after each number of epochs, and what pulled at its bins after the last."""

    looks: Mapping[int, Look]
    forces: Forces | None = None


@dataclass
class KeptTrainings:
    """A folder with a file per finished training; one is found again if rows, settings and versions are the same."""

    folder: Path
    found: int = 0

    def key(self, task: Task, recipe: LiteralRecipe, epochs: Sequence[int], forces: bool) -> dict[str, Any]:
        """Return everything that decides what a training gives."""
        config, schedule = literal_settings(recipe)
        return {
            **_given(task),
            "recipe": asdict(recipe) | {"hidden": list(recipe.hidden)},
            "network": repr(config),
            "schedule": repr(schedule),
            "epochs": list(epochs),
            "forces": forces,
        }

    def trial(self, task: Task, what: str, seed: int, train: Callable[[], Trial]) -> Trial:
        """Return the trial of a fit that is described by its name and settings: a kept one, or else train it."""
        key = {**_given(task), "fit": what, "seed": seed}
        kept = self.read(key)
        if kept is None:
            kept = Training({0: Look(train(), np.zeros(0))})
            self.write(key, kept)
        return kept.looks[0].trial

    def read(self, key: Mapping[str, Any]) -> Training | None:
        """Return the training with this key, if it was finished before; a damaged file is as good as none."""
        try:
            document = json.loads(self._path(key).read_text(encoding="utf-8"))
            if document["checksum"] != checksum(document) or document["key"] != key:
                return None
            training = _training(document)
        except (FileNotFoundError, ValueError, LookupError, TypeError):
            return None
        self.found += 1
        return training

    def write(self, key: Mapping[str, Any], training: Training) -> None:
        """Keep a training that has finished."""
        looks = {
            str(epochs): {
                "figures": {name: _number(value) for name, value in look.trial.figures.items()},
                "fields": _numbers(look.trial.fields),
                "bins": _numbers(look.bins),
                "trained": look.trial.trained and asdict(look.trial.trained),
            }
            for epochs, look in training.looks.items()
        }
        forces = training.forces and {
            name: _numbers(value) if isinstance(value, np.ndarray) else _number(value)
            for name, value in vars(training.forces).items()
        }
        document: dict[str, Any] = {"key": dict(key), "looks": looks, "forces": forces}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self._path(key), {**document, "checksum": checksum(document)}, indent=1)

    def tell(self, settings: Settings, study: str, trainings: int) -> None:
        """Tell how many of a study's trainings were found, if any."""
        if self.found:
            settings.tell(
                f"{study}: {self.found} of {trainings} trainings were finished by an earlier run on the same rows and "
                f"settings, and were not run again; to train them again, delete {self.folder}"
            )

    def _path(self, key: Mapping[str, Any]) -> Path:
        return self.folder / f"{checksum(key).removeprefix('sha256:')[:16]}.json"


def _training(document: Mapping[str, Any]) -> Training:
    looks = {
        int(epochs): Look(
            Trial(
                {name: float(value) for name, value in look["figures"].items()},
                _floats(look["fields"]),
                0.0,
                look["trained"] and Trained(**look["trained"]),
            ),
            _floats(look["bins"]),
        )
        for epochs, look in document["looks"].items()
    }
    pulls = document["forces"]
    if pulls is None:
        return Training(looks)
    log_loss, order = (_floats(pulls[name]) for name in ("log_loss", "order"))
    sizes = {name: float(pulls[name]) for name in ("log_loss_size", "order_size")}
    return Training(looks, Forces(log_loss=log_loss, order=order, **sizes))


def _number(value: float) -> float | str:
    """Return a number as JSON can have it: what is not finite is a text, as in a training that diverged."""
    return float(value) if math.isfinite(value) else repr(float(value))


def _numbers(values: FloatArray) -> list[Any]:
    return [_numbers(value) if isinstance(value, np.ndarray) else _number(value) for value in values]


def _floats(values: Sequence[Any]) -> FloatArray:
    return np.array([_floats(value) if isinstance(value, list) else float(value) for value in values])


def _given(task: Task) -> dict[str, str]:
    """Return what decides every training: code, torch and rows."""
    return {"mcnet": f"{__version__} {_sources()}", "torch": str(torch.__version__), "rows": task.digest}


@cache
def _sources() -> str:
    """Return a digest of the code that trains and measures."""
    here, package = Path(__file__).parent, Path(mcnet.__file__).parent
    files = [
        *(path for part in ("networks", "bayes", "calibrators") for path in sorted((package / part).glob("*.py"))),
        *(here / f"{name}.py" for name in ("literal", "trials", "with_features")),
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
