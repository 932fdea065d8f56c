"""Calibrators that are trained networks: MCNet as published, NeuCalib, AdaCalib, and features beside them."""
