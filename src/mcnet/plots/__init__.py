"""Numbers → Plotly figures and small HTML tables. It imports `_shared` alone, so that every package can draw.

Functions `…_of` give the numbers of a figure, `draw_…` make the figure as plain data, and `as_plotly` and `as_svg` show
it: in a notebook, and on a page without scripts.

- `figures`: curves, reliability, histograms, PCOC by field value. `timeline`: drift, backtests, memories.
- `style`: palette, axes, layout, tables in notebooks; figures as SVG; lines in a terminal.
"""
