"""The command line: options become calls into the other packages, and nothing else."""

__all__ = ["main"]


def main() -> None:
    """Run `mcnet` with the arguments of the process, and exit with its code."""
    from mcnet.cli.run import run

    raise SystemExit(run())
