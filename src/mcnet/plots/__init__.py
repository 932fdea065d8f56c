"""Numbers → Plotly figures and small HTML tables; knows no other room, so every room may draw what it holds."""
