"""Rows with a day and an hour, which tests put into files, folders and stores."""

import polars as pl

import mcnet

ROWS = pl.DataFrame(
    {
        "p": [0.1, 0.2, 0.4, 0.7, 0.9, 0.3],
        "y": [0, 1, 1, 0, 1, 0],
        "site": ["a", "b", "a", None, "é", "a"],
        "dt": ["2026-11-15", "2026-11-15", "2026-11-16", "2026-11-16", "2026-11-16", "2026-11-16"],
        "hour": [0, 7, 0, 0, 7, 7],
    }
)
NAMES = {"score": "p", "label": "y", "field": "site"}
EXPECTED = mcnet.scan(ROWS, **NAMES)
