"""Rows to try things on: simulated logs and worlds with a known truth, flights, and ways to split rows.

- `simulator`: a log whose true probabilities are known. `worlds`: the same with a truth that changes over periods, and
  positives that arrive late.
- `auctions`: auctions with market prices, of which a bidder logs those that it won.
- `flights`: public rows, and splits by row, by group, by time.
"""
