"""Models at work: whole log files calibrated in bounded memory."""
