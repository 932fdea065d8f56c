"""Rows to sketch: a small mergeable table that keeps what every calibrator needs."""
