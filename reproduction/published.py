"""The figures that the paper prints, to stand beside ours."""

from collections.abc import Mapping

__all__ = [
    "AUXILIARY",
    "BALANCE",
    "CONVERSIONS",
    "EFFICIENCY",
    "INFERENCE",
    "OVERFITTING",
    "PERFORMANCE",
    "PERFORMANCE_STD",
]

Triple = tuple[float, float, float]
"""PCOC, F-RCE, AUC."""

# Table 1 (means over three runs).
PERFORMANCE: Mapping[str, Mapping[str, Triple]] = {
    "CTR (AliExpress)": {
        "Base": (0.7727, 0.1610, 0.7216),
        "Histogram Binning": (0.8467, 0.1086, 0.7198),
        "Isotonic Regression": (0.8482, 0.1074, 0.7215),
        "Platt Scaling": (0.8441, 0.1103, 0.7216),
        "Gaussian Scaling": (0.8440, 0.1105, 0.7216),
        "Gamma Scaling": (0.8484, 0.1073, 0.7216),
        "SIR": (0.7821, 0.1544, 0.7216),
        "NeuCalib": (0.8472, 0.1082, 0.7216),
        "AdaCalib": (0.8599, 0.0993, 0.7217),
        "MCNet-None": (0.9745, 0.0177, 0.7215),
        "MCNet-Field": (0.8642, 0.0963, 0.7215),
    },
    "CVR (AliExpress)": {
        "Base": (1.4324, 0.3421, 0.7892),
        "Histogram Binning": (1.1966, 0.1604, 0.7865),
        "Isotonic Regression": (1.1989, 0.1618, 0.7883),
        "Platt Scaling": (1.3700, 0.2939, 0.7892),
        "Gaussian Scaling": (1.3092, 0.2475, 0.7892),
        "Gamma Scaling": (1.2720, 0.2177, 0.7892),
        "SIR": (1.1913, 0.1560, 0.7892),
        "NeuCalib": (1.1798, 0.1466, 0.7892),
        "AdaCalib": (1.1892, 0.1521, 0.7880),
        "MCNet-None": (1.1094, 0.1007, 0.7892),
        "MCNet-Field": (1.1728, 0.1403, 0.7877),
    },
    "CTR (Huawei Browser)": {
        "Base": (1.0750, 0.0318, 0.8758),
        "Histogram Binning": (0.9634, 0.0215, 0.8687),
        "Isotonic Regression": (0.9701, 0.0076, 0.8758),
        "Platt Scaling": (0.9692, 0.0083, 0.8758),
        "Gaussian Scaling": (0.9638, 0.0111, 0.8758),
        "Gamma Scaling": (0.9670, 0.0110, 0.8758),
        "SIR": (0.9448, 0.0151, 0.8758),
        "NeuCalib": (0.9902, 0.0127, 0.8758),
        "AdaCalib": (0.9746, 0.0114, 0.8757),
        "MCNet-None": (0.9721, 0.0092, 0.8758),
        "MCNet-Field": (0.9804, 0.0083, 0.8757),
    },
    "CVR (Huawei Browser)": {
        "Base": (0.9814, 0.0160, 0.8500),
        "Histogram Binning": (1.0042, 0.0080, 0.8493),
        "Isotonic Regression": (1.0037, 0.0081, 0.8499),
        "Platt Scaling": (1.0030, 0.0095, 0.8500),
        "Gaussian Scaling": (1.0045, 0.0093, 0.8500),
        "Gamma Scaling": (1.0064, 0.0113, 0.8500),
        "SIR": (1.0037, 0.0082, 0.8500),
        "NeuCalib": (1.0050, 0.0087, 0.8500),
        "AdaCalib": (1.0071, 0.0104, 0.8499),
        "MCNet-None": (1.0059, 0.0096, 0.8499),
        "MCNet-Field": (1.0056, 0.0061, 0.8500),
    },
}

# Table 1, the standard deviations over the three runs; methods without a start of their own have none.
PERFORMANCE_STD: Mapping[str, Mapping[str, Triple]] = {
    "CTR (AliExpress)": {
        "Platt Scaling": (0.0050, 0.0035, 0.0000),
        "Gaussian Scaling": (0.0101, 0.0072, 0.0000),
        "Gamma Scaling": (0.0070, 0.0050, 0.0000),
        "NeuCalib": (0.0040, 0.0029, 0.0000),
        "AdaCalib": (0.0274, 0.0194, 0.0000),
        "MCNet-None": (0.0141, 0.0100, 0.0001),
        "MCNet-Field": (0.0032, 0.0022, 0.0001),
    },
    "CVR (AliExpress)": {
        "Platt Scaling": (0.0024, 0.0018, 0.0000),
        "Gaussian Scaling": (0.0084, 0.0066, 0.0000),
        "Gamma Scaling": (0.0043, 0.0034, 0.0000),
        "NeuCalib": (0.0231, 0.0186, 0.0000),
        "AdaCalib": (0.0047, 0.0039, 0.0001),
        "MCNet-None": (0.0036, 0.0024, 0.0000),
        "MCNet-Field": (0.0048, 0.0029, 0.0001),
    },
    "CTR (Huawei Browser)": {
        "Platt Scaling": (0.0069, 0.0017, 0.0000),
        "Gaussian Scaling": (0.0201, 0.0049, 0.0000),
        "Gamma Scaling": (0.0238, 0.0055, 0.0000),
        "NeuCalib": (0.0052, 0.0005, 0.0000),
        "AdaCalib": (0.0367, 0.0095, 0.0000),
        "MCNet-None": (0.0021, 0.0000, 0.0000),
        "MCNet-Field": (0.0159, 0.0035, 0.0000),
    },
    "CVR (Huawei Browser)": {
        "Platt Scaling": (0.0006, 0.0005, 0.0000),
        "Gaussian Scaling": (0.0023, 0.0012, 0.0000),
        "Gamma Scaling": (0.0039, 0.0020, 0.0000),
        "NeuCalib": (0.0028, 0.0017, 0.0000),
        "AdaCalib": (0.0096, 0.0060, 0.0000),
        "MCNet-None": (0.0074, 0.0052, 0.0002),
        "MCNet-Field": (0.0012, 0.0010, 0.0000),
    },
}

# Table 2.
AUXILIARY: Mapping[str, Mapping[str, Triple]] = {
    "CTR (AliExpress)": {
        "NeuCalib-Aux": (0.8966, 0.0733, 0.7258),
        "AdaCalib-Aux": (0.8920, 0.0765, 0.7244),
        "MCNet-None-Aux": (0.8857, 0.0810, 0.7261),
        "MCNet-Field-Aux": (0.8908, 0.0773, 0.7254),
    },
    "CVR (AliExpress)": {
        "NeuCalib-Aux": (1.1175, 0.0958, 0.7850),
        "AdaCalib-Aux": (0.9597, 0.0273, 0.7873),
        "MCNet-None-Aux": (1.0168, 0.0258, 0.7894),
        "MCNet-Field-Aux": (1.0122, 0.0194, 0.7870),
    },
    "CTR (Huawei Browser)": {
        "NeuCalib-Aux": (1.0334, 0.0124, 0.8814),
        "AdaCalib-Aux": (1.0042, 0.0022, 0.8847),
        "MCNet-None-Aux": (1.0273, 0.0119, 0.8854),
        "MCNet-Field-Aux": (1.0002, 0.0020, 0.8829),
    },
    "CVR (Huawei Browser)": {
        "NeuCalib-Aux": (1.0060, 0.0062, 0.8515),
        "AdaCalib-Aux": (1.0187, 0.0200, 0.8519),
        "MCNet-None-Aux": (1.0061, 0.0140, 0.8536),
        "MCNet-Field-Aux": (0.9949, 0.0060, 0.8522),
    },
}

# Table 3, CTR on AliExpress: F-RCE, AUC, PCOC of all rows, of the four fields, and their standard deviation.
BALANCE: Mapping[tuple[str, bool], tuple[float, ...]] = {
    ("MCNet-None", False): (0.0063, 0.7214, 0.991, 0.997, 0.915, 0.942, 0.930, 0.0356),
    ("MCNet-None", True): (0.0072, 0.7216, 1.002, 1.007, 0.938, 0.966, 0.956, 0.0293),
    ("MCNet-Field", False): (0.0956, 0.7216, 0.865, 0.867, 0.878, 0.828, 0.837, 0.0236),
    ("MCNet-Field", True): (0.0899, 0.7213, 0.873, 0.875, 0.864, 0.849, 0.833, 0.0181),
    ("NeuCalib", False): (0.1054, 0.7216, 0.851, 0.855, 0.803, 0.822, 0.798, 0.0259),
    ("NeuCalib", True): (0.1002, 0.7216, 0.859, 0.862, 0.811, 0.831, 0.806, 0.0253),
    ("AdaCalib", False): (0.0751, 0.7217, 0.894, 0.894, 0.934, 0.877, 0.934, 0.0283),
    ("AdaCalib", True): (0.0819, 0.7216, 0.885, 0.885, 0.891, 0.874, 0.853, 0.0167),
}

# Table of efficiency: minutes an epoch and MiB of GPU memory, by data set, method and T.
EFFICIENCY: Mapping[str, Mapping[tuple[str, int | None], tuple[float, float]]] = {
    "AliExpress": {
        ("NeuCalib", None): (0.63, 1457.0),
        ("AdaCalib", None): (1.3, 1497.0),
        ("MCNet-None", 10): (5.5, 1515.0),
        ("MCNet-None", 20): (5.5, 1515.0),
        ("MCNet-None", 50): (5.4, 1509.0),
    },
    "Huawei Browser": {
        ("NeuCalib", None): (23.0, 23855.0),
        ("AdaCalib", None): (21.7, 24263.0),
        ("MCNet-None", 10): (69.6, 24889.0),
        ("MCNet-None", 20): (79.0, 24838.0),
        ("MCNet-None", 50): (74.6, 24824.0),
    },
}

# Table of statistics, AliExpress: validation conversions of the four field values; 1 and 2 seem to be exchanged.
CONVERSIONS: Mapping[tuple[str, str], tuple[int, ...]] = {("aliexpress", "validation"): (1_913, 158, 108, 41)}

# Milliseconds to calibrate one row.
INFERENCE: Mapping[str, float] = {"MCNet-None": 12.2e-3, "AdaCalib": 2.02e-3, "NeuCalib": 0.48e-3}

# CVR after 2, 4, 6, 8 and 10 epochs: PCOC and AUC.
OVERFITTING: Mapping[tuple[str, str], tuple[tuple[float, ...], tuple[float, ...]]] = {
    ("AliExpress", "MCNet-None"): (
        (1.0999, 1.1127, 1.1089, 1.1089, 1.1165),
        (0.7892, 0.7892, 0.7892, 0.7892, 0.7892),
    ),
    ("AliExpress", "MCNet-None-Aux"): (
        (1.0168, 0.9895, 0.9837, 0.9753, 0.9678),
        (0.7894, 0.7893, 0.7893, 0.7892, 0.7890),
    ),
    ("Huawei Browser", "MCNet-None"): (
        (0.9995, 0.9997, 0.9998, 1.0001, 1.0003),
        (0.8497, 0.8497, 0.8497, 0.8497, 0.8497),
    ),
    ("Huawei Browser", "MCNet-None-Aux"): (
        (0.9988, 1.0020, 1.0110, 0.9976, 1.0061),
        (0.8549, 0.8552, 0.8543, 0.8535, 0.8536),
    ),
}
