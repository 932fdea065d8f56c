"""Rows to try things on: the simulator, AliExpress, flights, and ways to split them.

- `simulator`: a log whose true probabilities are known. `simulated_log`: its fields and its rows.
  `worlds`: the same with a truth that changes over periods. `delays`: positives that arrive late.
- `impressions`: clicks and conversions shaped like the data of the MCNet paper.
- `aliexpress`, `flights`: public rows. `splits`: by row, by group, by time.
"""
