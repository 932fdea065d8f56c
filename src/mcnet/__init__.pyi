"""The public names of mcnet, each with the module it lives in: the one list, read by `mcnet/__init__.py` too."""

# Packages that people use by name; they are loaded when first used, and no star loads them.
import mcnet.metrics as metrics  # noqa: F401
import mcnet.mlflow as mlflow  # noqa: F401
import mcnet.networks as networks  # noqa: F401
import mcnet.spark as spark  # noqa: F401
from mcnet.bayes.estimator import BayesMCNet
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.beta import Beta
from mcnet.calibrators.density_scaling import GammaScaling, GaussianScaling
from mcnet.calibrators.histogram import Histogram
from mcnet.calibrators.identity import Identity
from mcnet.calibrators.isotonic import Isotonic
from mcnet.calibrators.per_field import PerField
from mcnet.calibrators.platt import Platt, Temperature
from mcnet.calibrators.platt_field import PlattField
from mcnet.calibrators.registry import calibrator, methods
from mcnet.calibrators.sir import SIR
from mcnet.datasets.simulator import simulate
from mcnet.errors import (
    BusyError,
    CalibrationWarning,
    FileFormatError,
    InputError,
    McnetError,
    NotFittedError,
    NotSupportedError,
)
from mcnet.loop.job import update
from mcnet.loop.outcome import Update
from mcnet.metrics.evaluate_sketch import evaluate_sketch
from mcnet.metrics.evaluation import Evaluation, evaluate
from mcnet.model.file import load
from mcnet.model.model import CalibrationModel
from mcnet.neural.adacalib import AdaCalib
from mcnet.neural.mcnet import MCNet
from mcnet.neural.neucalib import NeuCalib
from mcnet.neural.with_features import WithFeatures
from mcnet.report.backtest_page import write_backtest_report
from mcnet.report.page import write_report
from mcnet.report.pictures import plot_curves
from mcnet.scikit_learn.classifier import CalibratedClassifier
from mcnet.selection.select import select
from mcnet.selection.selection import Selection
from mcnet.sketch.query import sketch_query
from mcnet.sketch.scan import scan
from mcnet.sketch.sketch import Sketch
from mcnet.tracking.arrival import ArrivalCurve
from mcnet.tracking.backtest import backtest
from mcnet.tracking.backtest_result import Backtest
from mcnet.tracking.journal import Journal
from mcnet.tracking.monitor import Alarm, Monitor
from mcnet.tracking.tracker import Tracker
from mcnet.tracking.tracker_explanation import TrackerExplanation
from mcnet.version import __version__
from mcnet.versions.difference import ModelDifference, diff
from mcnet.versions.registry import Registry
from mcnet.versions.version import Version

__all__ = [
    "SIR",
    "AdaCalib",
    "Alarm",
    "ArrivalCurve",
    "Backtest",
    "BayesMCNet",
    "Beta",
    "BusyError",
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
    "Journal",
    "MCNet",
    "McnetError",
    "ModelDifference",
    "Monitor",
    "NeuCalib",
    "NotFittedError",
    "NotSupportedError",
    "PerField",
    "Platt",
    "PlattField",
    "Registry",
    "Selection",
    "Sketch",
    "Temperature",
    "Tracker",
    "TrackerExplanation",
    "Update",
    "Version",
    "WithFeatures",
    "__version__",
    "backtest",
    "calibrator",
    "diff",
    "evaluate",
    "evaluate_sketch",
    "load",
    "methods",
    "plot_curves",
    "scan",
    "select",
    "simulate",
    "sketch_query",
    "update",
    "write_backtest_report",
    "write_report",
]
