"""Follow a world that changes: the journal of periods, the tracker, the backtest and the monitor.

- `journal`: the past as a folder of sketches. `journal_files`, `journal_entries`: what lies in it and what counts.
  `journal_additions`, `journal_parts`: adding. `journal_sketches`, `journal_snapshot`, `journal_readers`: reading.
  `compaction`, `merged_periods`: merging. `arrival`, `known_counts`, `journal_ages`: positives that arrive late.
  `period`: the names of periods.
- `tracker`: a calibrator for the coming period. `learner`: what it knows. `memories`, `experts`, `stack`, `switching`:
  how it weighs the past. `effects`, `seasons`, `forecast`, `coming_period`: what it expects. `clock`, `replay`:
  when it learns. `tracker_explanation`, `tracker_file`: what it believes, and where that is saved.
- `backtest`: the past predicted anew. `backtest_run`, `backtest_forecasters`, `backtest_memories`, `backtest_judge`,
  `backtest_intervals`: its steps. `backtest_result`: its tables.
- `monitor`: is the served model still calibrated? `evidence`: the test behind it. `slope`: that of the slope.
"""
