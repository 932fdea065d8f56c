"""Numbers → Plotly figures and small HTML tables. It imports `_shared` alone, so that every package can draw.

- `figures`: curves, reliability, histograms, PCOC by field value. `timeline`: drift, backtests, memories.
- `style`: palette, axes, layout, tables in notebooks, lines in a terminal. `svg`: pictures without JavaScript.
"""
