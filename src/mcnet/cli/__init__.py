"""The command line: options become calls into the other packages, and nothing else.

- `app`: every command by its name. `run`: exit codes and errors in one line. `signals`: what ends a command.
- Commands, one file each: `fit`, `apply`, `evaluate`, `compare`, `sketch` (and merge), `show`, `export`, `methods`,
  `demo`, `journal`, `backtest`, `monitor` (and `monitor_state`), `versions` (and diff), `update`, `serve`, `paper`.
- What commands share: `options`, `config` (`mcnet.toml`), `parameters`, `thresholds` (`--fail-if`).
- Rows of a command: `sources` (logs, sketches, journals), `files` (reading and writing), `storage` (object stores,
  standard output), `over_time`, `unseen`.
- What is printed: `printing`, `encoding` (terminals that cannot show every character).
"""

__all__ = ["main"]


def main() -> None:
    """Run `mcnet` with the arguments of the process, and exit with its code."""
    from mcnet.cli.run import run

    raise SystemExit(run())
