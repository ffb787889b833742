"""Federated contextual bandits: agents that learn together without sharing their data.

``Federation`` makes agents and a coordinator to be driven step by step. ``run`` and ``reproduce`` run experiments in the
simulator, with the numbers of the ``posse`` command. ``algorithms`` and ``figures`` list what there is.
"""

from ._errors import ConfigError, DecodeError, Error, ExperimentError, InputError, ProtocolError
from ._experiments import Algorithm, Figure, Result, Setting, algorithms, figures, load, reproduce, run
from ._posse import VERSION as __version__
from ._posse import Agent, Coordinator, Federation
from ._tables import Table

__all__ = [
    "Agent",
    "Algorithm",
    "ConfigError",
    "Coordinator",
    "DecodeError",
    "Error",
    "ExperimentError",
    "Federation",
    "Figure",
    "InputError",
    "ProtocolError",
    "Result",
    "Setting",
    "Table",
    "__version__",
    "algorithms",
    "figures",
    "load",
    "reproduce",
    "run",
]
