"""Compare methods honestly, and choose one."""
