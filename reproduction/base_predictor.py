"""The base predictor: embeddings and a multilayer network, trained on features to score rows."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcnet.errors import InputError
from mcnet.networks.optimise import flush_denormals, threads_for
from reproduction.tasks import Features

__all__ = ["SMALL", "Recipe", "train_base_predictor"]

# Rows that are read, and shuffled, together: large reads from a memory-mapped file, little memory.
BLOCK = 1 << 17
UNSEEN = 0
LEAST_STEPS = 50


@dataclass(frozen=True)
class Recipe:
    """How to build and train: Adam on batches, stopping when the held-out part of the training rows gets no better.

    `hide` is the chance that a category of a training row is shown as unseen, which teaches what to make of ids
    that training never met.
    """

    embedding: int = 128
    hidden: tuple[int, ...] = (512, 256, 128, 64)
    dropout: float = 0.2
    batch: int = 2048
    rate: float = 1e-3
    decay: float = 1e-6
    epochs: int = 10
    patience: int = 1
    held_out: float = 0.1
    hide: float = 0.005
    seed: int = 0


SMALL = Recipe(embedding=8, hidden=(64, 32), dropout=0.0, epochs=12)


class _Network(nn.Module):
    """Embedded categories beside standardised numbers, through dense layers, to one logit."""

    centre: Tensor
    spread: Tensor
    offsets: Tensor

    def __init__(self, sizes: list[int], centre: Tensor, spread: Tensor, recipe: Recipe) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.register_buffer("spread", spread)
        self.register_buffer("offsets", torch.tensor([0, *np.cumsum(sizes)[:-1]], dtype=torch.int64))
        # One table for all columns; only the rows that a batch touches have a gradient.
        self.table = nn.Embedding(max(sum(sizes), 1), recipe.embedding, sparse=True)
        nn.init.normal_(self.table.weight, std=0.05)
        layers: list[nn.Module] = []
        width = len(sizes) * recipe.embedding + len(centre)
        for out in recipe.hidden:
            layers += [nn.Linear(width, out), nn.BatchNorm1d(out), nn.ReLU(), nn.Dropout(recipe.dropout)]
            width = out
        self.dense = nn.Sequential(*layers)
        self.head = nn.Linear(width, 1)

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        embedded = self.table(codes + self.offsets).flatten(1)
        dense: Tensor = self.dense(torch.cat([embedded, (numbers - self.centre) / self.spread], dim=1))
        logit: Tensor = self.head(dense)
        return logit[:, 0]


@dataclass(frozen=True)
class BasePredictor:
    """A trained network and the ids it knows."""

    network: _Network
    known: tuple[NDArray[np.int32], ...]
    held_out_loss: float
    epochs: int

    @torch.no_grad()
    def predict(self, features: Features) -> NDArray[np.float64]:
        """Return the score of each row; ids that training never met count as unseen."""
        self.network.eval()
        parts = []
        for start in range(0, len(features), BLOCK):
            block = features.take(slice(start, start + BLOCK))
            logit = self.network(*_inputs(block, self.known))
            parts.append(torch.sigmoid(logit.double()).numpy())
        return np.concatenate(parts) if parts else np.zeros(0)


def train_base_predictor(
    features: Features,
    label: NDArray[np.int8],
    recipe: Recipe = SMALL,
    *,
    chosen: NDArray[np.bool_] | None = None,
    progress: Callable[[str], Any] | None = None,
) -> BasePredictor:
    """Train on rows, holding a part of them back to decide when to stop; test rows have no say in it.

    `chosen` marks the rows to use; the others are not looked at. Features mapped from a file are read a block at a
    time.
    """
    if len(features) != len(label):
        raise InputError(f"there are {len(features)} rows of features and {len(label)} labels")
    draw = np.random.default_rng([recipe.seed, 29])
    rows = np.flatnonzero(np.ones(len(label), dtype=np.bool_) if chosen is None else chosen)
    draw.shuffle(rows)
    used, held = np.zeros((2, len(label)), dtype=np.bool_)
    held[rows[: round(recipe.held_out * len(rows))]] = True
    used[rows[round(recipe.held_out * len(rows)) :]] = True
    if not 0 < label[used].sum() < used.sum() or not held.any():
        positives = int(label[rows].sum())
        raise InputError(f"{len(rows)} rows with {positives} positives are too few to train a base predictor")
    # What torch draws (weights, dropout) follows the recipe's seed and leaves the caller's stream alone.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return _train(features, label, used, held, recipe, draw, progress)


def _train(
    features: Features,
    label: NDArray[np.int8],
    used: NDArray[np.bool_],
    held: NDArray[np.bool_],
    recipe: Recipe,
    draw: np.random.Generator,
    progress: Callable[[str], Any] | None,
) -> BasePredictor:
    known, centre, spread = _survey(features, used)
    network = _Network([len(ids) + 1 for ids in known], centre, spread, recipe)
    # Training starts at the mean rate: a few steps on few rows would not get there from one half.
    rate = float(label[used].mean())
    nn.init.constant_(network.head.bias, float(np.log(rate / (1.0 - rate))))
    # Few rows get small batches, so that an epoch has enough steps to learn from.
    batch = int(np.clip(used.sum() // LEAST_STEPS, 32, recipe.batch))
    layers = [*network.dense.parameters(), *network.head.parameters()]
    optimisers = (
        torch.optim.Adam(layers, lr=recipe.rate, weight_decay=recipe.decay),
        torch.optim.SparseAdam(network.table.parameters(), lr=recipe.rate),
    )
    best, state, waited, epoch = float("inf"), network.state_dict(), 0, 0
    with flush_denormals(), threads_for(batch * sum(p.numel() for p in layers)):
        for epoch in range(1, recipe.epochs + 1):
            network.train()
            for done, (numbers, codes, target) in enumerate(_batches(features, label, used, known, batch, draw)):
                if progress is not None and done % 100 == 0:
                    progress(f"base predictor, epoch {epoch}, {done * batch / used.sum():.0%}")
                hidden = torch.from_numpy(draw.random(codes.shape) < recipe.hide)
                logit = network(numbers, codes.masked_fill(hidden, UNSEEN))
                loss = nn.functional.binary_cross_entropy_with_logits(logit, target)
                for optimiser in optimisers:
                    optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                for optimiser in optimisers:
                    optimiser.step()
            found = _held_out_loss(network, features, label, held, known)
            if found < best:
                best, state, waited = found, copy.deepcopy(network.state_dict()), 0
            else:
                waited += 1
            if waited > recipe.patience:
                break
    network.load_state_dict(state)
    network.eval()
    return BasePredictor(network, known, best, epoch)


def _survey(features: Features, used: NDArray[np.bool_]) -> tuple[tuple[NDArray[np.int32], ...], Tensor, Tensor]:
    """Return the ids of each category and the mean and spread of each number, among the rows to train on."""
    columns = features.categories.shape[1]
    ids: list[NDArray[np.int32]] = [np.zeros(0, dtype=np.int32)] * columns
    count, total, squares = 0, np.zeros(features.numbers.shape[1]), np.zeros(features.numbers.shape[1])
    for start in range(0, len(features), BLOCK):
        rows = slice(start, start + BLOCK)
        block = features.take(rows).take(used[rows])
        ids = [np.union1d(ids[i], np.unique(block.categories[:, i])) for i in range(columns)]
        numbers = np.nan_to_num(block.numbers.astype(np.float64))
        count, total, squares = count + len(block), total + numbers.sum(axis=0), squares + (numbers**2).sum(axis=0)
    mean = total / max(count, 1)
    spread = np.sqrt(np.maximum(squares / max(count, 1) - mean**2, 0.0))
    spread[spread < 1e-6] = 1.0
    return tuple(ids), torch.tensor(mean, dtype=torch.float32), torch.tensor(spread, dtype=torch.float32)


def _inputs(features: Features, known: tuple[NDArray[np.int32], ...]) -> tuple[Tensor, Tensor]:
    """Return the numbers, and the row of each id in its table: UNSEEN, then the known ones in order."""
    numbers = np.nan_to_num(np.asarray(features.numbers, dtype=np.float32))
    return torch.from_numpy(numbers), torch.from_numpy(features.places(known) + 1)


def _batches(
    features: Features,
    label: NDArray[np.int8],
    used: NDArray[np.bool_],
    known: tuple[NDArray[np.int32], ...],
    size: int,
    draw: np.random.Generator,
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield shuffled batches of the used rows: blocks in random order, rows in random order inside a block."""
    starts = draw.permutation(np.arange(0, len(label), BLOCK))
    for start in starts:
        rows = slice(start, start + BLOCK)
        kept = used[rows]
        block, target = features.take(rows).take(kept), label[rows][kept]
        numbers, places = _inputs(block, known)
        targets = torch.from_numpy(target.astype(np.float32))
        # A last batch of one row would have no spread to normalise by.
        for part in torch.split(torch.from_numpy(draw.permutation(len(target))), size):
            if len(part) > 1:
                yield numbers[part], places[part], targets[part]


@torch.no_grad()
def _held_out_loss(
    network: _Network,
    features: Features,
    label: NDArray[np.int8],
    held: NDArray[np.bool_],
    known: tuple[NDArray[np.int32], ...],
) -> float:
    network.eval()
    total = 0.0
    for start in range(0, len(label), BLOCK):
        rows = slice(start, start + BLOCK)
        block = features.take(rows).take(held[rows])
        logit = network(*_inputs(block, known))
        target = torch.from_numpy(label[rows][held[rows]].astype(np.float32))
        total += float(nn.functional.binary_cross_entropy_with_logits(logit, target, reduction="sum"))
    return total / max(int(held.sum()), 1)
