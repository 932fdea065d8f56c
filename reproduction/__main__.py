"""Run the study as `python -m reproduction`."""

from mcnet.cli.run import run
from reproduction.commands import paper

raise SystemExit(run(application=paper, name="python -m reproduction"))
