"""The report: figures, and one self-contained HTML page that shows what was fitted, on what, and how well.

- `page`: writes the page. `assets`: what is embedded in it. `facts`: its sentences and tables. `figures`: its figures.
- `backtest_page` (with `backtest_figures`), `monitor_page`, `difference_page`, `status_page`: the pages of a backtest,
  of a monitor, of the difference of two models, and of the loop.
- `pictures`: figures for a notebook.
- Numbers behind the figures: `preparation`, `views` (parts of the rows), `order`, `drift`.
"""

from mcnet.model.drawing import prepare_lines
from mcnet.report.drift import prepare_drift
from mcnet.report.order import prepare_order
from mcnet.report.page import write_report
from mcnet.report.pictures import plot_curves, plot_drift, plot_forest, plot_histogram, plot_reliability
from mcnet.report.preparation import prepare_points, prepare_reliability
from mcnet.report.views import prepare_views

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
