"""The served model: curves with their contexts, its file, and applying it to rows and log files."""
