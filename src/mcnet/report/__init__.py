"""The report: figures, and one self-contained HTML page that shows what was fitted, on what, and how well.

- `page`: writes the page. `page_figures`: its figures, and those for a notebook.
- `value_page`: of a replay of auctions. `backtest_page`: of a backtest. `status_page`: of the loop.
"""
