"""Post-hoc calibration of ranking scores: monotone, field-aware, fitted on a sketch of any number of rows."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mcnet.version import __version__

if TYPE_CHECKING:
    from mcnet.calibrators.adacalib import AdaCalib
    from mcnet.calibrators.base import Calibrator
    from mcnet.calibrators.beta import Beta
    from mcnet.calibrators.classifier import CalibratedClassifier
    from mcnet.calibrators.densities import GammaScaling, GaussianScaling
    from mcnet.calibrators.histogram import Histogram
    from mcnet.calibrators.identity import Identity
    from mcnet.calibrators.isotonic import Isotonic
    from mcnet.calibrators.mcnet import MCNet
    from mcnet.calibrators.neucalib import NeuCalib
    from mcnet.calibrators.per_field import PerField
    from mcnet.calibrators.platt import Platt, Temperature
    from mcnet.calibrators.platt_field import PlattField
    from mcnet.calibrators.registry import calibrator, methods
    from mcnet.calibrators.sir import SIR
    from mcnet.curves.model import CalibrationModel
    from mcnet.curves.store import load
    from mcnet.errors import (
        CalibrationWarning,
        FileFormatError,
        InputError,
        McnetError,
        NotFittedError,
        NotSupportedError,
    )
    from mcnet.metrics.evaluation import Evaluation, evaluate
    from mcnet.metrics.sketched import evaluate_sketch
    from mcnet.report.page import write_report
    from mcnet.report.pictures import plot_curves
    from mcnet.rows.simulate import simulate
    from mcnet.selection.selecting import Selection, select
    from mcnet.sketch.scanning import scan
    from mcnet.sketch.sketch import Sketch

# Names are imported when first asked for: `import mcnet` is instant, and serving a saved model never loads what only
# fitting needs.
_HOMES = {
    "AdaCalib": "calibrators.adacalib",
    "CalibratedClassifier": "calibrators.classifier",
    "CalibrationModel": "curves.model",
    "CalibrationWarning": "errors",
    "Calibrator": "calibrators.base",
    "Beta": "calibrators.beta",
    "Evaluation": "metrics.evaluation",
    "FileFormatError": "errors",
    "GammaScaling": "calibrators.densities",
    "GaussianScaling": "calibrators.densities",
    "Histogram": "calibrators.histogram",
    "Identity": "calibrators.identity",
    "InputError": "errors",
    "Isotonic": "calibrators.isotonic",
    "MCNet": "calibrators.mcnet",
    "McnetError": "errors",
    "NeuCalib": "calibrators.neucalib",
    "NotFittedError": "errors",
    "NotSupportedError": "errors",
    "PerField": "calibrators.per_field",
    "Platt": "calibrators.platt",
    "PlattField": "calibrators.platt_field",
    "SIR": "calibrators.sir",
    "Selection": "selection.selecting",
    "Sketch": "sketch.sketch",
    "Temperature": "calibrators.platt",
    "calibrator": "calibrators.registry",
    "evaluate": "metrics.evaluation",
    "evaluate_sketch": "metrics.sketched",
    "load": "curves.store",
    "methods": "calibrators.registry",
    "plot_curves": "report.pictures",
    "scan": "sketch.scanning",
    "select": "selection.selecting",
    "simulate": "rows.simulate",
    "write_report": "report.page",
}

__all__ = [
    "SIR",
    "AdaCalib",
    "Beta",
    "CalibratedClassifier",
    "CalibrationModel",
    "CalibrationWarning",
    "Calibrator",
    "Evaluation",
    "FileFormatError",
    "GammaScaling",
    "GaussianScaling",
    "Histogram",
    "Identity",
    "InputError",
    "Isotonic",
    "MCNet",
    "McnetError",
    "NeuCalib",
    "NotFittedError",
    "NotSupportedError",
    "PerField",
    "Platt",
    "PlattField",
    "Selection",
    "Sketch",
    "Temperature",
    "__version__",
    "calibrator",
    "evaluate",
    "evaluate_sketch",
    "load",
    "methods",
    "plot_curves",
    "scan",
    "select",
    "simulate",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mcnet' has no attribute {name!r}")
    value = getattr(import_module(f"mcnet.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
