"""Contexts without features of arms: a block of parameters for each arm."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def blocks(context: npt.ArrayLike, arms: int) -> Floats:
    """The features of each arm: its block holds the context and a constant 1, all others zeros."""
    own = np.append(np.asarray(context, dtype=np.float64), 1.0)
    whole = np.zeros((arms, arms * own.size))
    for arm in range(arms):
        whole[arm, arm * own.size : (arm + 1) * own.size] = own
    return whole


def seeded(seed: Any) -> int:
    """A seed as posse takes it."""
    return 0 if seed is None else int(seed)
