"""Which devices torch can use here."""

import torch

__all__ = ["cuda_available"]


def cuda_available() -> bool:
    """Tell whether torch finds a CUDA device."""
    return torch.cuda.is_available()
