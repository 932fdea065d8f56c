"""Run the command line as `python -m mcnet.cli`."""

from mcnet.cli import main

__all__: list[str] = []

main()
