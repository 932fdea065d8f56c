"""MLflow: log a model with its signature, and load it as any `pyfunc`, without torch.

Needs the extra `mlflow`: in a clone of mcnet, `pip install '.[mlflow]'`.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnet._shared.arrays import logit
from mcnet._shared.messages import need_extra
from mcnet.errors import FileFormatError, InputError
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import as_model, load, model_document
from mcnet.rows.fields import source_column
from mcnet.version import __version__

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = "calibrated"
_FILE = "model.json"
_EXAMPLE_SCORES = np.array([0.01, 0.1, 0.5])


def log_model(model: Any, name: str = "model", **options: Any) -> Any:
    """Log a model to the active MLflow run, or to a new one, with its signature and an input example.

    Parameters
    ----------
    model : a `CalibrationModel`, a fitted calibrator, or the path of a model file.
    name : the name of the logged model.
    options : those of `mlflow.pyfunc.log_model`, such as `registered_model_name`, `signature`, `input_example`,
        `pip_requirements` and `metadata`, in the place of what is made from the model.

    Returns
    -------
    ModelInfo : what MLflow tells of the logged model; `model_uri` loads it.
    """
    need_extra("mlflow", "mcnet.mlflow")
    import mlflow.pyfunc

    with _described(model, options) as words:
        return mlflow.pyfunc.log_model(name=name, **words)


def save_model(model: Any, path: str | PathLike[str], **options: Any) -> None:
    """Save a model as a folder that MLflow loads and serves.

    Parameters
    ----------
    model : a `CalibrationModel`, a fitted calibrator, or the path of a model file.
    path : the folder to make; it must not exist.
    options : those of `mlflow.pyfunc.save_model`, in the place of what is made from the model.
    """
    need_extra("mlflow", "mcnet.mlflow")
    import mlflow.pyfunc

    if Path(path).exists():
        raise InputError(f"{path} exists already; name a new folder")
    with _described(model, options) as words:
        mlflow.pyfunc.save_model(path=str(path), **words)


@contextmanager
def _described(model: Any, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the arguments of MLflow: the model file, its columns, rows that show how to call it, what to install."""
    result = as_model(model, "logged")
    about = {"method": result.method, "score_type": result.score_type, "checksum": model_document(result)["checksum"]}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / _FILE
        result.save(file)
        yield {
            "loader_module": "mcnet.mlflow",
            "data_path": str(file),
            "signature": _signature(result),
            "input_example": example_rows(result),
            "pip_requirements": [f"mcnet[mlflow]=={__version__}"],
            **options,
            "metadata": {"mcnet": about, **(options.get("metadata") or {})},
        }


def load_model(model_uri: str) -> CalibrationModel:
    """Load a logged or saved model as the `CalibrationModel` that it is, checked as any model file.

    Parameters
    ----------
    model_uri : as MLflow has it: `runs:/…/model`, `models:/name/3`, or the path of the folder.
    """
    need_extra("mlflow", "mcnet.mlflow")
    from mlflow.artifacts import download_artifacts

    folder = Path(download_artifacts(model_uri))
    files = sorted(folder.rglob(_FILE))
    if not files:
        raise FileFormatError(f"{model_uri} has no {_FILE}: it was not logged by mcnet.mlflow")
    return load(files[0])


class PyfuncCalibrator:
    """What `mlflow.pyfunc.load_model` serves: a table with a column of scores and one per field goes in."""

    def __init__(self, model: CalibrationModel) -> None:
        """Keep the model."""
        self.model = model

    def predict(self, rows: "pd.DataFrame", params: dict[str, Any] | None = None) -> "pd.DataFrame":
        """Return a table with the column `calibrated`, with the index of the rows."""
        import pandas as pd

        score = score_column(self.model)
        lacking = [name for name in (score, *map(source_column, self.model.needed_fields)) if name not in rows.columns]
        if lacking:
            raise InputError(f"the rows lack the column {lacking[0]!r}; they have {', '.join(map(str, rows.columns))}")
        field = {name: rows[source_column(name)] for name in self.model.needed_fields} or None
        return pd.DataFrame({OUTPUT: self.model.predict(rows[score].to_numpy(), field)}, index=rows.index)


def score_column(model: CalibrationModel) -> str:
    """Return the name of the column of scores: as in the log that was fitted, or `score`."""
    column = model.provenance.get("columns", {}).get("score")
    return column if isinstance(column, str) and column not in model.fields else "score"


def example_rows(model: CalibrationModel) -> "pd.DataFrame":
    """Return a few rows of the model's own field values."""
    import pandas as pd

    scores = logit(_EXAMPLE_SCORES) if model.score_type == "logit" else _EXAMPLE_SCORES
    columns: dict[str, Any] = {score_column(model): scores}
    for name in model.needed_fields:
        values = model.contexts.values[model.fields.index(name)]
        known = [value for value in values if value is not None] or ["any"]
        columns[source_column(name)] = [known[index % len(known)] for index in range(len(scores))]
    return pd.DataFrame(columns)


def _load_pyfunc(data_path: str) -> PyfuncCalibrator:
    """Load what MLflow serves; it calls this with the path of the model file."""
    return PyfuncCalibrator(load(data_path))


def _signature(model: CalibrationModel) -> Any:
    from mlflow.models import ModelSignature
    from mlflow.types.schema import AnyType, ColSpec, DataType, Schema

    inputs: list[Any] = [ColSpec(DataType.double, score_column(model))]
    # A field of whole numbers is as good as one of texts: predict knows 7 and "7" for the same value.
    inputs += [ColSpec(AnyType(), name) for name in dict.fromkeys(map(source_column, model.needed_fields))]
    return ModelSignature(Schema(inputs), Schema([ColSpec(DataType.double, OUTPUT)]))
