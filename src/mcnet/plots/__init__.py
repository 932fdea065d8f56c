"""Numbers → Plotly figures and small HTML tables. It imports `_shared` alone, so that every package can draw."""
