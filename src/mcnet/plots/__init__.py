"""Numbers → Plotly figures and small HTML tables. It imports `_shared` alone, so that every package can draw.

- Figures: `reliability`, `curves`, `forest` (PCOC by field value), `histogram`, `drift` (with
  the axis of dates), `memories`, `timeline`.
- `style`: palette, axes, layout. `svg`, `terminal`: pictures without JavaScript. `html`: tables in notebooks.
"""
