"""MCNet as a module of torch, for your own training loop."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from math import prod
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from mcnet._shared.arrays import SCORE_FLOOR, FloatArray, ScoreType, logit
from mcnet.calibrators.parameters import check_count
from mcnet.errors import InputError
from mcnet.model.model import CalibrationModel
from mcnet.networks.bank import BankConfig, BankFit, place_bins
from mcnet.networks.kinds import unused_settings
from mcnet.networks.monotone import BankShape, MonotoneBank, Positive
from mcnet.networks.objective import Penalties, balance_loss, log_loss_in, order_loss
from mcnet.networks.optimise import Descent
from mcnet.networks.training_points import (
    check_choices,
    check_rate,
    check_seed,
    check_switch,
    check_used_by_kind,
    check_widths,
    compiled_curves,
)
from mcnet.rows.columns import labels_column, scores_column, weights_column
from mcnet.rows.contexts import Contexts
from mcnet.rows.fields import UNNAMED
from mcnet.sketch.sketch import Sketch
from mcnet.version import __version__

# Checks of the rows given to a module: what their tensors are, and their values.
#
# A batch costs one look at the least and the largest value of each tensor; which row is wrong is found only after that.
# While torch traces a program (`torch.export`) there are no values to look at, and only types and shapes
# are checked.

_LARGEST = float(torch.finfo(torch.float32).max)


def plain_column(values: Any) -> Any:
    """Return a tensor as a NumPy array, whatever its type and device; other columns as they are."""
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()


def check_scores(score: Any, score_type: ScoreType) -> None:
    """Raise unless the scores are a floating-point tensor `[rows]` of probabilities, or of finite logits."""
    if not isinstance(score, Tensor):
        raise InputError(f"score is {type(score).__name__}; give a tensor, such as torch.as_tensor(score)")
    if not score.is_floating_point():
        raise InputError(f"score is a tensor of {score.dtype}; scores are floating-point numbers")
    if score.ndim != 1:
        advice = ", such as score[:, 0]" if score.ndim == 2 and score.shape[1] == 1 else ""
        raise InputError(f"score has shape {tuple(score.shape)}; give one number per row, [rows]{advice}")
    low, high = (0.0, 1.0) if score_type == "probability" else (-_LARGEST, _LARGEST)
    if not _are_within(score, low, high):
        scores_column(plain_column(score), score_type=score_type)
        raise InputError("score has infinite logits; clip them, to −30 … 30 for example")


def check_labels(label: Any, score: Tensor) -> None:
    """Raise unless there is a label from 0 to 1 for each score."""
    _check_column("label", label, score, labels_column, 1.0)
    if len(score) == 0:
        raise InputError("the batch is empty; a loss needs at least one row")


def check_weights(weight: Any, score: Tensor) -> None:
    """Raise unless there is a finite weight ≥ 0 for each score, and some weight in all."""
    _check_column("weight", weight, score, weights_column, _LARGEST)
    if _has_values(weight) and not bool(weight.detach().sum() > 0):
        raise InputError("weight is 0 for every row of the batch; a loss needs some weight")


def checked_codes(context: Any, score: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return the codes `[rows, fields]`, with the code `size` for values never seen; raise if they are no codes."""
    if context is None:
        if sizes:
            raise InputError(f"the module has {len(sizes)} field(s); give their codes as `context`")
        return torch.zeros(score.shape[0], 0, dtype=torch.long, device=score.device)
    if not isinstance(context, Tensor):
        raise InputError(f"context is {type(context).__name__}; give a tensor of codes, such as torch.as_tensor(codes)")
    if context.is_floating_point() or context.is_complex() or context.dtype == torch.bool:
        raise InputError(f"context is a tensor of {context.dtype}; codes are whole numbers, such as torch.int64")
    if context.ndim not in (1, 2) or context.shape[0] != score.shape[0]:
        wanted = f"[{score.shape[0]}] or [{score.shape[0]}, fields]"
        raise InputError(f"context has shape {tuple(context.shape)}; give the codes of each row, {wanted}")
    codes = context.long()
    codes = codes[:, None] if codes.ndim == 1 else codes
    if codes.shape[1] != len(sizes):
        raise InputError(f"context has {codes.shape[1]} field(s); the module has {len(sizes)}")
    limit = torch.tensor(sizes, dtype=torch.long, device=codes.device)
    if _has_values(codes):
        wrong = (codes < -1) | (codes >= limit)
        if bool(wrong.any()):
            row, field = (int(i) for i in wrong.nonzero()[0])
            raise InputError(
                f"context has the code {int(codes[row, field])} in row {row}, field {field}, whose codes are 0 … "
                f"{sizes[field] - 1}; −1 is a value never seen"
            )
    return torch.where((codes < 0) | (codes >= limit), limit, codes)


def _check_column(name: str, values: Any, score: Tensor, column: Callable[[Any], np.ndarray], most: float) -> None:
    if not isinstance(values, Tensor):
        raise InputError(f"{name} is {type(values).__name__}; give a tensor, such as torch.as_tensor({name})")
    if values.is_complex():
        raise InputError(f"{name} is a tensor of {values.dtype}, not of plain numbers")
    if values.shape != score.shape:
        # A column [rows, 1] would be broadcast to every pair of rows.
        raise InputError(f"{name} has shape {tuple(values.shape)}; give one per score, {tuple(score.shape)}")
    if not _are_within(values, 0.0, most):
        column(plain_column(values))


def _are_within(values: Tensor, low: float, high: float) -> bool:
    """Tell whether all values are known to lie in an interval; NaN does not."""
    if not _has_values(values):
        return True
    least, most = values.detach().aminmax()
    return bool((least >= low) & (most <= high))


def _has_values(values: Tensor) -> bool:
    return values.numel() > 0 and not torch.compiler.is_compiling()


# MCNet as a module of torch, to be trained inside any loop.

_MOST_COMBINATIONS = 20_000
_NOT_TRAINED_HERE = Descent(loss=float("nan"), steps=0, converged=False, remaining=float("nan"))


class MonotonicCalibration(nn.Module):
    """MCNet as a module: one monotone network per score bin, f(s, c) → probability.

    The bins are placed when the module is made, at equal mass of the scores given, and stay there. Inside a bin the
    probability rises strictly with the score; `loss` has the regulariser that joins the bins, and `compile_curves`
    removes what falls between them. Parameters are float32; the module can be moved, saved by its `state_dict`, and
    exported by `torch.export`.

    Parameters
    ----------
    scores : scores like those to come (an array or a tensor), or a sketch of rows.
    sizes : the number of values of each field, such as (16,); their codes are 0 … size − 1, and −1 for a value
        never seen. With a sketch, None takes the sketch's fields.
    weight : the weight of each score, where the bins are placed.
    bins : the number of networks K; fewer if there are fewer distinct scores.
    score_type : "probability" or "logit": what `scores`, and the scores given to `forward`, are.
    space : "logit" (functions of logits, then a sigmoid) or "probability" (the paper).
    network : the kind of monotone network, "umnn" (the paper), "lmn" or "minmax", as in `MCNet`. The last two have no
        integral and refuse `quadrature`, `steps` and `derivative`.
    start : "identity", "random" or "torch": the function before training, as in `MCNet`.
    quadrature : "plain" differentiates the integral by autograd; "lean" integrates the gradient (Algorithm 2 of the
        paper), in memory that does not grow with `steps`.
    steps : the Clenshaw–Curtis steps T of each integral.
    beta_order : the weight of the order regulariser; None takes 0.01 in logit space and 1 in probability space.
    alpha_balance, balance : the weight of the field-balance regulariser and its norm, as in `MCNet`; with several
        fields it needs a sketch, which knows the combinations that occur.
    hidden, embedding, share_embedding, derivative, activation, scale, lower : the shape of the networks.
    standardise : the units in which networks see scores: "none" (as they are: the paper), or standard deviations of all
        scores, "global", or of those in their "bin".
    direct : whether every field value also adds two numbers of its own, past the bias network; the paper has none.
    seed : of the random start.
    """

    def __init__(
        self,
        scores: Any,
        sizes: int | Sequence[int] | None = None,
        *,
        weight: Any = None,
        bins: int = 20,
        score_type: ScoreType = "probability",
        space: Literal["logit", "probability"] = "logit",
        network: str = "umnn",
        start: Literal["identity", "random", "torch"] = "identity",
        quadrature: Literal["plain", "lean"] = "plain",
        steps: int = 20,
        beta_order: float | None = None,
        alpha_balance: float = 0.0,
        balance: Literal["global", "field"] = "global",
        hidden: tuple[int, ...] = (128, 128),
        embedding: int = 128,
        share_embedding: bool = False,
        derivative: Positive = "sigmoid",
        activation: Literal["silu", "tanh", "relu"] = "silu",
        scale: bool = True,
        lower: Literal["zero", "edge", "centre"] = "centre",
        standardise: Literal["none", "global", "bin"] = "bin",
        direct: bool | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_choices(network=network, space=space, start=start, quadrature=quadrature, balance=balance)
        check_choices(derivative=derivative, activation=activation, lower=lower, standardise=standardise)
        for name, count in (("bins", bins), ("steps", steps), ("embedding", embedding)):
            check_count(name, count)
        check_switch("share_embedding", share_embedding)
        check_switch("scale", scale)
        if direct is not None:
            check_switch("direct", direct)
        kind = {"network": network, "derivative": derivative, "steps": steps, "quadrature": quadrature}
        check_used_by_kind(MonotonicCalibration, kind)
        check_widths("hidden", hidden)
        check_rate("alpha_balance", alpha_balance)
        check_rate("beta_order", 0.0 if beta_order is None else beta_order)
        check_seed(seed)
        self.sketch, column, mass = _rows_to_bin(scores, weight, score_type)
        self.contexts: Contexts | None = None
        if isinstance(scores, Sketch):
            score_type = scores.score_type
            self.contexts = scores.contexts if sizes is None else None
            sizes = [len(known) for known in scores.contexts.values] if sizes is None else sizes
        self.sizes = _sizes(sizes)
        if alpha_balance > 0 and not self.sizes:
            raise InputError("alpha_balance > 0 compares field values; pass sizes=, or set alpha_balance=0")
        if alpha_balance > 0 and len(self.sizes) > 1 and self.contexts is None:
            raise InputError(
                "with several fields alpha_balance > 0 compares the combinations that occur, which sizes do not tell; "
                "make the module from a sketch of the training rows and leave sizes out, or set alpha_balance=0"
            )
        self.score_type, self.quadrature, self.steps = score_type, quadrature, steps
        shape = BankShape(
            hidden=tuple(hidden),
            embedding=embedding,
            share_embedding=share_embedding,
            positive=derivative,
            activation=activation,
            scale=scale,
            space=space,
            lower=lower,
            standardise=standardise,
            start=start,
            direct=scale if direct is None else direct,
            network=network,
        )
        self.config = BankConfig(
            bins=bins,
            shape=shape,
            penalties=Penalties(beta_order, alpha_balance, balance),
            least_positives=0.0,
            seed=seed,
        )
        points = logit(column) if space == "logit" else column
        self.bank = MonotoneBank(shape, self.sizes, place_bins(points, mass, mass / 2.0, self.config), seed)

    @classmethod
    def paper(
        cls,
        variant: Literal["none", "field"],
        scores: Any,
        sizes: int | Sequence[int] | None = None,
        **changes: Any,
    ) -> "MonotonicCalibration":
        """Return the published network, MCNet-None or MCNet-Field, with what it is trained by.

        Probability space, 20 networks of 2 × 128 (ReLU) with a sigmoid derivative, integrals from 0 with T = 50, scores
        as they are, β = 1, α = 0: the function and the loss of `MCNet.paper`, to be trained by Adam on batches of 2048
        rows at a learning rate of 1e-5 (None) or 1e-4 (Field). The paper leaves the start open; here it is the
        identity, unless `start="torch"`. Its printed formula has no exp(r): `scale=False`.

        Parameters
        ----------
        variant : "none", which sees no field, or "field".
        scores, sizes : as in the constructor; "none" takes no sizes.
        changes : settings to change, by name.
        """
        if variant not in ("none", "field"):
            raise InputError(f"the variant is {variant!r}; it must be 'none' or 'field'")
        if variant == "none" and sizes is not None:
            raise InputError("MCNet-None sees no field; leave sizes out, or take 'field'")
        check_choices(network=changes.get("network", "umnn"))
        from mcnet.networks.bank import paper_config

        shape = paper_config(field=variant == "field")[0].shape
        settings: dict[str, Any] = {
            "activation": shape.activation,
            "space": shape.space,
            "lower": shape.lower,
            "standardise": shape.standardise,
            "direct": shape.direct,
            "beta_order": 1.0,
        }
        if "steps" not in unused_settings(changes.get("network", "umnn")):
            settings["steps"] = 50
        module = cls(scores, () if variant == "none" else sizes, **(settings | changes))
        if variant == "field" and not module.sizes:
            raise InputError("MCNet-Field needs the number of values of its field; give sizes, or take 'none'")
        return module

    def extra_repr(self) -> str:
        """Return bins, fields and space, for the module's text."""
        return f"bins={self.bank.bins}, sizes={self.sizes}, space={self.bank.shape.space!r}"

    def forward(self, score: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the calibrated probability of each row.

        Parameters
        ----------
        score : the scores `[rows]`; gradients reach them.
        context : the codes of the field values, whole numbers `[rows]` or `[rows, fields]`; without fields it is left
            out.
        """
        check_scores(score, self.score_type)
        values = self._values(self._points(score), checked_codes(context, score, self.sizes))
        if self.bank.shape.space == "logit":
            return torch.sigmoid(values)
        return values.clamp(SCORE_FLOOR, 1.0 - SCORE_FLOOR)

    def loss(self, score: Tensor, context: Tensor | None, label: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the training loss of a batch: mean log-loss + β · order + α · balance.

        The order term sums over the values of the field or, with several fields, over the contexts of the batch. The
        balance term compares all values of the field or, with several fields, the contexts that the sketch of the
        training rows has: one without rows in the batch counts as being in balance, as in the paper, where each is a
        sum over the rows.

        Parameters
        ----------
        score, context : as in `forward`.
        label : 0 or 1, or anything between, `[rows]`.
        weight : the weight of each row, `[rows]`; None is 1.
        """
        check_scores(score, self.score_type)
        check_labels(label, score)
        if weight is not None:
            check_weights(weight, score)
        codes = checked_codes(context, score, self.sizes)
        space, penalties = self.bank.shape.space, self.config.penalties
        values = self._values(self._points(score), codes)
        mass = torch.ones_like(values) if weight is None else weight.to(values)
        positives = mass * label.to(values)
        total = log_loss_in(space, values, mass, positives)
        order = penalties.order_in(space)
        if order > 0 and self.bank.bins > 1:
            total = total + order * order_loss(*self.bank.edge_values(self._all_contexts(codes)))
        if penalties.balance > 0:
            chance = torch.sigmoid(values) if space == "logit" else values
            present, group = torch.unique(codes, dim=0, return_inverse=True)
            # A context that the training rows do not have is one more.
            groups = len(torch.unique(torch.cat([self._known_contexts(codes), present]), dim=0))
            total = total + penalties.balance * balance_loss(
                chance, mass, positives, group, groups, penalties.normalise
            )
        return total

    def compile_curves(
        self, fields: Mapping[str, Sequence[str]] | None = None, *, guarantee: bool = True
    ) -> CalibrationModel:
        """Return the function as it is now as a model of curves: it predicts without torch, saves, and exports.

        Parameters
        ----------
        fields : the values of each field by its name, in the order of their codes; None takes those of the sketch, or
            calls the values "0", "1", ….
        guarantee : remove falls between the bins, so that the order of scores holds for certain.
        """
        contexts = self._contexts(fields)
        if not all(bool(torch.isfinite(p).all()) for p in self.parameters()):
            raise InputError(
                "the module has parameters that are not finite: its training diverged; lower the learning rate"
            )
        fitted = BankFit(self.bank, self.config, _NOT_TRAINED_HERE, order_loss=float("nan"))
        curves, _ = compiled_curves(fitted, contexts, self.sketch, guarantee=guarantee)
        return CalibrationModel(
            method="mcnet",
            parameters=self._plain_parameters(),
            contexts=contexts,
            curves=curves.bounded(),
            monotone=guarantee,
            score_type=self.score_type,
            total_weight=self.sketch.total_weight,
            provenance={
                "rows": self.sketch.rows,
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "library": f"mcnet {__version__}",
            },
        )

    def _points(self, score: Tensor) -> Tensor:
        """Return the scores in the space of the functions, in float64."""
        precise = score.to(self.bank.origin.dtype)
        space = self.bank.shape.space
        if self.score_type == space:
            return precise
        return torch.sigmoid(precise) if space == "probability" else torch.logit(precise, eps=SCORE_FLOOR)

    def _values(self, points: Tensor, codes: Tensor) -> Tensor:
        bins = self.bank.bin_of(points.detach())
        if torch.compiler.is_compiling():
            return self._values_of_all_bins(points, codes).gather(0, bins[None])[0]
        lean = self.quadrature == "lean"
        return self.bank(points, bins, codes, self.steps, lean)  # type: ignore[no-any-return]

    def _values_of_all_bins(self, points: Tensor, codes: Tensor) -> Tensor:
        """Return every bin's function at every row, `[K, rows]`: more work, in shapes that an exporter can follow."""
        bank, context = self.bank, self.bank.embed(codes)
        bias = bank.offset_and_scale(codes, context)
        upper = points[None, :].expand(bank.bins, -1)
        lower = bank.origin[:, None].expand_as(upper)
        lean = self.quadrature == "lean" and torch.is_grad_enabled()
        area = bank.area(lower, upper, context, self.steps, lean)
        return lower.to(bias.dtype) + bias[..., 0] + bias[..., 1].exp() * area

    def _known_contexts(self, codes: Tensor) -> Tensor:
        """Return the codes of the contexts of the training rows: those of the sketch, or all values of one field."""
        if self.contexts is not None:
            return torch.as_tensor(self.contexts.table, dtype=codes.dtype, device=codes.device)
        return torch.arange(self.sizes[0], device=codes.device)[:, None]

    def _all_contexts(self, codes: Tensor) -> Tensor:
        if len(self.sizes) == 1:
            return torch.arange(self.sizes[0], device=codes.device)[:, None]
        return torch.unique(codes, dim=0) if self.sizes else codes[:1]

    def _contexts(self, fields: Mapping[str, Sequence[str]] | None) -> Contexts:
        if fields is None and self.contexts is not None:
            return self.contexts
        if fields is None:
            only = len(self.sizes) == 1
            names = (UNNAMED if only else f"{UNNAMED}_{i + 1}" for i in range(len(self.sizes)))
            fields = {name: [str(v) for v in range(n)] for name, n in zip(names, self.sizes, strict=True)}
        known = _values_by_field(fields)
        lengths = tuple(len(values) for values in known.values())
        if lengths != self.sizes:
            raise InputError(f"fields has {lengths} values; the module was made for {self.sizes}")
        if not self.sizes:
            return Contexts.none()
        if prod(self.sizes) > _MOST_COMBINATIONS:
            raise InputError(
                f"the fields have {prod(self.sizes):,} combinations; make the module from a sketch, which knows those "
                "that occur"
            )
        table = np.array(list(product(*map(range, self.sizes))), dtype=np.int32)
        return Contexts(tuple(known), tuple(known.values()), table)

    def _plain_parameters(self) -> dict[str, Any]:
        shape, penalties = self.bank.shape, self.config.penalties
        return {
            "bins": self.bank.bins,
            "network": shape.network,
            "hidden": list(shape.hidden),
            "embedding": shape.embedding,
            "derivative": shape.positive,
            "activation": shape.activation,
            "scale": shape.scale,
            "start": shape.start,
            "space": shape.space,
            "beta_order": penalties.order_in(shape.space),
            "alpha_balance": penalties.balance,
        }


def _rows_to_bin(scores: Any, weight: Any, score_type: ScoreType) -> tuple[Sketch, FloatArray, FloatArray]:
    """Return the sketch given, or one of scores without labels, and the scores and weights that place the bins."""
    if isinstance(scores, Sketch):
        if weight is not None:
            raise InputError("a sketch has the weights of its rows; leave weight out")
        return scores.unfolded(), scores.score, scores.weight
    column = scores_column(plain_column(scores), score_type=score_type)
    weights = None if weight is None else weights_column(plain_column(weight))
    mass = np.ones(len(column)) if weights is None else weights
    kept = mass > 0.0
    return Sketch.from_rows(column, np.zeros(len(column)), weight=weights), column[kept], mass[kept]


def _values_by_field(fields: Any) -> dict[str, tuple[str, ...]]:
    """Return the values of each field as texts; refuse what is no such table, and values that come twice."""
    if not isinstance(fields, Mapping) or any(isinstance(values, str) for values in fields.values()):
        raise InputError('fields has the values of each field by its name, such as {"country": ["NL", "US"]}')
    known = {str(name): tuple(map(str, values)) for name, values in fields.items()}
    for name, values in known.items():
        twice = sorted(value for value, count in Counter(values).items() if count > 1)
        if twice:
            raise InputError(f"fields has the value {twice[0]!r} of {name} twice; each code needs its own value")
    return known


def _sizes(sizes: int | Sequence[int] | None) -> tuple[int, ...]:
    result = tuple(sizes) if isinstance(sizes, Sequence | np.ndarray) else () if sizes is None else (sizes,)
    if any(isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1 for n in result):
        raise InputError(f"sizes is {sizes!r}; it has the number of values of each field, such as (16,)")
    return tuple(int(n) for n in result)
