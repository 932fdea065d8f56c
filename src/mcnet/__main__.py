"""Run the command line as `python -m mcnet`."""

from mcnet.cli import main

raise SystemExit(main())
