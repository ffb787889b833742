"""Checks of your own algorithms."""

from __future__ import annotations

from typing import Any

from . import _posse
from ._errors import Violation
from ._own import Agent, name_of

__all__ = ["Violation", "check"]


def check(algorithm: type[Agent] | str, *, dimension: int = 4, **settings: Any) -> None:
    """Check that an algorithm keeps every promise of the conformance suite.

    The suite plays small federations with it: the same calls give the same bytes; machines that are saved and restored
    before every call go on as if they had not been; every observation is counted once; the order of arms does not matter;
    bad input and foreign states are refused and change nothing; and over links that lose, repeat and delay, everything
    arrives in the end, once. Settings should let agents speak within a few dozen interactions.

    Parameters
    ----------
    algorithm : type of Agent or str
        A class of your own, or the name of an algorithm.
    dimension : int, optional
        How many features an arm has.
    **settings
        Settings of the algorithm.

    Raises
    ------
    Violation
        A promise is broken; the text says which, and what happened instead.
    """
    _posse.check({**settings, "name": name_of(algorithm)}, dimension)
