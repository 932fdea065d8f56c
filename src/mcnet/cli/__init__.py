"""The command line: options become calls into the other packages, and nothing else.

- `app`: every command by its name. `run`: what is printed, exit codes, errors in one line, signals.
- Commands: `fit` (and fields, sketch, merge, methods, demo), `models` (apply, show, diff, export), `compare` (and
  evaluate, slices), `value`, `journal` (and backtest), `monitor`, `update` (and serve), `stores` (versions, store).
- What commands share: `options`, `config` (`mcnet.toml`), `thresholds` (`--fail-if`), `sources` (rows and files).
"""

from mcnet.cli.run import main

__all__ = ["main"]
