"""Follow a world that changes: the tracker, the backtest and the monitor.

- `tracker`: a calibrator for the coming period, and what it believes. `learner`: what it knows. `memories`, `forecast`:
  how it weighs the past, and what it expects. `value_changes`: which field values move by themselves. `suspect`: is a
  period plausible? `tracker_file`: where it is saved, and how it follows a journal.
- `backtest`: the past predicted anew. `backtest_run`, `backtest_forecasters`: its steps. `backtest_result`: its tables.
- `monitor`: is the served model still calibrated? `evidence`: the tests behind it.
"""
