"""Calibrators that are trained networks: MCNet as published, NeuCalib, AdaCalib, and features beside them.

- Methods: `mcnet`, `neucalib`, `adacalib`, `with_features` (a calibrator with a network on features beside it).
- `network_calibrator`: what the first three share. `network_settings`: checks of their parameters.
- `bank_training`: MCNet's networks. `line_plot`: NeuCalib's function, solved without torch. `training_cells`: a sketch
  as the networks take it. `fit_rows`: rows for training that needs them one by one.
- Features: `joint_training`, `feature_model` (what is served), `feature_gain` (what it gained).
"""
