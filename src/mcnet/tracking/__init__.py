"""Follow a world that changes: the journal of periods, the tracker, the backtest and the monitor."""
