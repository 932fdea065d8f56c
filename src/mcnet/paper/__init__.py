"""The MCNet paper end to end: its data, base predictor, tables and figures."""
