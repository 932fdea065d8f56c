"""Numbers → Plotly figures and small HTML tables. It imports no other package of mcnet, so each of them can draw."""
