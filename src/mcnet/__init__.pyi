"""The public names of mcnet, each with the module it lives in: the one list, read by `mcnet/__init__.py` too."""

# Packages that people use by name; they are loaded when first used, and no star loads them.
import mcnet.metrics as metrics  # noqa: F401
import mcnet.mlflow as mlflow  # noqa: F401
import mcnet.networks as networks  # noqa: F401
import mcnet.spark as spark  # noqa: F401
from mcnet.auctions import Replay, replay
from mcnet.bayes.estimator import BayesMCNet
from mcnet.calibrators.base import Calibrator
from mcnet.calibrators.binning import SIR, Histogram, Isotonic
from mcnet.calibrators.methods import calibrator, methods
from mcnet.calibrators.parametric import Beta, GammaScaling, GaussianScaling, Identity, Offset, Platt, Temperature
from mcnet.calibrators.per_field import OffsetField, PerField, PlattField
from mcnet.datasets.auctions import SimulatedAuctions, simulate_auctions
from mcnet.datasets.simulator import simulate
from mcnet.difference import ModelDifference, diff
from mcnet.errors import (
    BusyError,
    CalibrationWarning,
    FileFormatError,
    InputError,
    McnetError,
    NotFittedError,
    NotSupportedError,
    StoreUnavailableError,
)
from mcnet.field_search import FieldSearch, find_fields
from mcnet.metrics.evaluation import Evaluation, evaluate, evaluate_sketch
from mcnet.metrics.slices import Slices, slices
from mcnet.model.model import CalibrationModel
from mcnet.model.model_file import load
from mcnet.networks.baselines import AdaCalib, NeuCalib
from mcnet.networks.mcnet import MCNet
from mcnet.networks.with_features import WithFeatures
from mcnet.operations.update import Update, update
from mcnet.report.backtest_page import write_backtest_report
from mcnet.report.page import write_report
from mcnet.report.page_figures import plot_curves
from mcnet.report.value_page import write_value_page
from mcnet.scikit_learn import CalibratedClassifier
from mcnet.selection import Selection, select
from mcnet.sketch.query import sketch_query
from mcnet.sketch.scan import scan
from mcnet.sketch.sketch import Sketch
from mcnet.store.arrival import ArrivalCurve
from mcnet.store.journal import Journal
from mcnet.store.settings import HeadSettings
from mcnet.store.store import Store
from mcnet.store.versions import Registry, Version
from mcnet.tracking.backtest import backtest
from mcnet.tracking.backtest_result import Backtest
from mcnet.tracking.monitor import Alarm, Monitor
from mcnet.tracking.tracker import Tracker, TrackerExplanation
from mcnet.version import __version__

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
    "FieldSearch",
    "FileFormatError",
    "GammaScaling",
    "GaussianScaling",
    "HeadSettings",
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
    "Offset",
    "OffsetField",
    "PerField",
    "Platt",
    "PlattField",
    "Registry",
    "Replay",
    "Selection",
    "SimulatedAuctions",
    "Sketch",
    "Slices",
    "Store",
    "StoreUnavailableError",
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
    "find_fields",
    "load",
    "methods",
    "plot_curves",
    "replay",
    "scan",
    "select",
    "simulate",
    "simulate_auctions",
    "sketch_query",
    "slices",
    "update",
    "write_backtest_report",
    "write_report",
    "write_value_page",
]
