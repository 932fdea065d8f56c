"""Which methods are compared, and how a line of the tables is named."""

# (peer, method): whether it can use a field.
PEER_METHODS = {
    ("mcnet", "mcnet"): True,
    ("mcgrad", "default"): True,
    ("mcgrad", "monotone"): True,
    ("probcal", "segmented beta"): True,
    ("probcal", "segmented spline"): True,
    ("scikit-learn", "isotonic"): False,
    ("scikit-learn", "isotonic per field"): True,
    ("scikit-learn", "logistic + field"): True,
    ("scikit-learn", "sigmoid"): False,
    ("scikit-learn", "temperature"): False,
    ("betacal", "beta"): False,
    ("venn-abers", "inductive"): False,
    ("netcal", "logistic"): False,
    ("netcal", "beta"): False,
    ("netcal", "histogram"): False,
}
NEEDS_FIELD = {("scikit-learn", "isotonic per field"), ("scikit-learn", "logistic + field")}
# Ours, other than the default; those that train networks are slow enough to be asked for by size.
OWN_METHODS = {
    ("mcnet", "isotonic"): False,
    ("mcnet", "platt"): False,
    ("mcnet", "beta"): False,
    ("mcnet", "histogram"): False,
    ("mcnet", "sir"): False,
    ("mcnet", "gaussian"): False,
    ("mcnet", "gamma"): False,
    ("mcnet", "platt-field"): True,
    ("mcnet", "per-field"): True,
    ("mcnet", "neucalib"): False,
    ("mcnet", "adacalib"): True,
    ("mcnet", "per-bin"): True,
}
NETWORKS = {("mcnet", "adacalib"), ("mcnet", "per-bin")}


def ranked(figures: dict[str, float], ours: str = "mcnet") -> str:
    """Return a sentence on whether ours has the lowest figure."""
    if ours not in figures:
        return f"{ours} has no figure"
    best = min(figures, key=figures.__getitem__)
    if best == ours:
        others = {name: value for name, value in figures.items() if name != ours}
        if not others:
            return f"{ours} alone has a figure"
        second = min(others, key=others.__getitem__)
        return f"{ours} is first; next is {second}, {others[second] / figures[ours]:.2f}×"
    place = sorted(figures.values()).index(figures[ours]) + 1
    return f"**{ours} is not first** (place {place}): {best} has {figures[best] / figures[ours]:.2f}× its figure"
