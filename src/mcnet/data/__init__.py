"""Rows come in: validated columns, fields, contexts, log files, periods."""
