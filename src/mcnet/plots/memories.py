"""The weights of memories: how much of the recent and of the long past is in what is served."""

from dataclasses import dataclass

from mcnet._shared.typing import FloatArray
from mcnet.plots.style import AFTER, BEFORE, Spec, axis, layout, numbers

__all__ = ["MemoryWeights", "draw_memory_weights"]


@dataclass(frozen=True)
class MemoryWeights:
    """Weights of memories, one row per series (what follows them) and one column per memory."""

    memories: tuple[str, ...]
    series: tuple[str, ...]
    weights: FloatArray


def draw_memory_weights(shown: MemoryWeights, *, height: int = 300) -> Spec:
    """Draw the weights as bars, side by side for each memory."""
    traces = [
        {
            "type": "bar",
            "name": name,
            "x": list(shown.memories),
            "y": numbers(weights),
            "marker": {"color": colour},
            "hovertemplate": f"%{{x}}: %{{y:.3f}} of the {name}<extra></extra>",
        }
        for name, weights, colour in zip(shown.series, shown.weights, (AFTER, BEFORE), strict=False)
    ]
    return {
        "data": traces,
        "layout": layout(
            height,
            xaxis=axis("memory (half-life in periods)", type="category"),
            yaxis=axis("weight", rangemode="tozero"),
            barmode="group",
        ),
    }
