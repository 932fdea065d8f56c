"""Which methods are compared, and how a line of the tables is named."""

# (peer, method): whether it can use a field.
PEER_METHODS = {
    ("mcnet", "mcnet-bayes"): True,
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
NEEDS_FIELD = {
    ("scikit-learn", "isotonic per field"),
    ("scikit-learn", "logistic + field"),
    ("mcgrad", "multiplicative per field"),
    ("mcnet", "offset-field"),
    ("mcnet", "platt-field"),
    ("mcnet", "per-field"),
}
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
    ("mcnet", "MCNet-Field"): True,
    ("mcnet", "MCNet-None"): False,
}
# On small fits: all peers, with what they have for few positives, and our methods that are no networks.
SMALL_FITS = (
    PEER_METHODS
    | {
        key: OWN_METHODS[key]
        for key in OWN_METHODS
        if key[1] in ("isotonic", "platt", "beta", "platt-field", "per-field")
    }
    | {
        ("mcnet", "offset"): False,
        ("mcnet", "offset-field"): True,
        ("probcal", "logit offset"): False,
        ("mcgrad", "additive adjustment"): False,
        ("mcgrad", "multiplicative adjustment"): False,
        ("mcgrad", "multiplicative per field"): True,
    }
)
NETWORKS = {("mcnet", "adacalib"), ("mcnet", "MCNet-Field"), ("mcnet", "MCNet-None")}


def label(peer: str, method: str) -> str:
    """Return how a method is called on the page."""
    return "mcnet-bayes" if (peer, method) == ("mcnet", "mcnet-bayes") else f"{peer}: {method}"


def ranked(figures: dict[str, float], ours: str = "mcnet-bayes", differences: bool = False) -> str:
    """Return a sentence on whether ours has the lowest figure, with ratios or with differences."""
    if ours not in figures:
        return f"{ours} has no figure"

    def beside(name: str) -> str:
        if differences:
            return f"{figures[name] - figures[ours]:+.5f}"
        return f"{figures[name] / figures[ours]:.2f}×"

    order = sorted(figures, key=figures.__getitem__)
    if order[0] == ours:
        return (
            f"{ours} is first of {len(order)}; next is {order[1]}, {beside(order[1])}"
            if order[1:]
            else f"{ours} alone has a figure"
        )
    return f"**{ours} is not first** (place {order.index(ours) + 1} of {len(order)}): {order[0]} is, {beside(order[0])}"
