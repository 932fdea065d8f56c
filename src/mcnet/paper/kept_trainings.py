"""Trainings kept as they finish, so that a study that was interrupted goes on where it was."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mcnet._shared.json_files import checksum, write_json
from mcnet._shared.typing import FloatArray
from mcnet.paper.forces import Forces
from mcnet.paper.literal import LiteralRecipe, literal_settings
from mcnet.paper.tasks import Task
from mcnet.paper.trials import Trial
from mcnet.version import __version__

__all__ = ["KeptTrainings", "Look", "Training"]


@dataclass(frozen=True)
class Look:
    """A literal fit after some epochs: its trial, and the PCOC of each bin on the fitted rows."""

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
            "mcnet": __version__,
            "torch": torch.__version__,
            "rows": _digest(task),
            "recipe": asdict(recipe) | {"hidden": list(recipe.hidden)},
            "network": repr(config),
            "schedule": repr(schedule),
            "epochs": list(epochs),
            "forces": forces,
        }

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
                "fields": [_number(value) for value in look.trial.fields],
                "bins": look.bins.tolist(),
            }
            for epochs, look in training.looks.items()
        }
        forces = training.forces and {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(training.forces).items()
        }
        document: dict[str, Any] = {"key": dict(key), "looks": looks, "forces": forces}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self._path(key), {**document, "checksum": checksum(document)}, indent=1)

    def _path(self, key: Mapping[str, Any]) -> Path:
        return self.folder / f"{checksum(key).removeprefix('sha256:')[:16]}.json"


def _training(document: Mapping[str, Any]) -> Training:
    looks = {
        int(epochs): Look(
            Trial(
                {name: _float(value) for name, value in look["figures"].items()},
                np.array([_float(value) for value in look["fields"]]),
                0.0,
            ),
            np.array(look["bins"]),
        )
        for epochs, look in document["looks"].items()
    }
    pulls = document["forces"]
    if pulls is None:
        return Training(looks)
    arrays = {name: np.array(pulls[name]) for name in ("log_loss", "order")}
    return Training(looks, Forces(**arrays, log_loss_size=pulls["log_loss_size"], order_size=pulls["order_size"]))


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _digest(task: Task) -> str:
    found = hashlib.sha256(task.name.encode())
    for sample in (task.validation, task.test):
        for column in (sample.score, sample.label, sample.field, sample.truth):
            found.update(b"none" if column is None else np.ascontiguousarray(column).tobytes())
    return found.hexdigest()
