"""The command line: options become calls into the other packages, and nothing else.

- `app`: every command by its name. `run`: what is printed, exit codes, errors in one line, signals.
- Commands: `fit` (and fields, sketch, merge, methods, demo), `models` (apply, show, diff, export), `compare` (and
  evaluate, slices), `value`, `journal` (and backtest), `monitor`, `update` (and serve), `stores` (versions, store).
- What commands share: `options` (and `mcnet.toml`), `thresholds` (`--fail-if`), `sources` (rows and files).
"""

__all__ = ["main"]


def main() -> None:
    """Run `mcnet` with the arguments of the process, and exit with its code."""
    from mcnet.cli.run import run

    raise SystemExit(run())
