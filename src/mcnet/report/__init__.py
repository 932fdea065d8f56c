"""The report: figures, and one self-contained HTML page that shows what was fitted, on what, and how well.

- `page`: writes the page. `page_figures`: its figures, and those for a notebook.
- `backtest_page`: of a backtest. `monitor_page`: of a monitor, of the loop, and of a difference of two models.
"""

from mcnet.model.drawing import prepare_lines
from mcnet.report.page import write_report
from mcnet.report.page_figures import (
    plot_curves,
    plot_drift,
    plot_forest,
    plot_histogram,
    plot_reliability,
    prepare_drift,
    prepare_order,
    prepare_points,
    prepare_reliability,
    prepare_views,
)

__all__ = [
    "plot_curves",
    "plot_drift",
    "plot_forest",
    "plot_histogram",
    "plot_reliability",
    "prepare_drift",
    "prepare_lines",
    "prepare_order",
    "prepare_points",
    "prepare_reliability",
    "prepare_views",
    "write_report",
]
