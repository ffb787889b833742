"""Federated contextual bandits: agents that learn together without sharing their data.

``Federation`` makes agents and a coordinator to be driven step by step. ``run`` and ``reproduce`` run experiments in the
simulator, with the numbers of the ``posse`` command; subclasses of ``Agent``, ``Coordinator`` and ``World`` run in them
beside posse's own. ``connect`` joins a running federation. ``posse.data`` prepares data, ``evaluate`` judges policies on
logs. ``algorithms`` and ``figures`` list what there is.
"""

from . import data, testing
from ._codec import pack, unpack
from ._errors import (
    ConfigError,
    ConnectError,
    DecodeError,
    Error,
    ExperimentError,
    InputError,
    ProtocolError,
)
from ._evaluate import Estimate, Evaluation, evaluate
from ._experiments import Algorithm, Figure, Result, Setting, algorithms, figures, load, merge, reproduce, run
from ._live import Chosen, Health, LiveAgent, connect, connect_async
from ._own import Agent, Coordinator, Message, Offer, Setup, World, register
from ._posse import VERSION as __version__
from ._posse import Federation, FederationAgent, FederationCoordinator, SimulatedWorld
from ._tables import Table

__all__ = [
    "Agent",
    "Algorithm",
    "Chosen",
    "ConfigError",
    "ConnectError",
    "Coordinator",
    "DecodeError",
    "Error",
    "Estimate",
    "Evaluation",
    "ExperimentError",
    "Federation",
    "FederationAgent",
    "FederationCoordinator",
    "Figure",
    "Health",
    "InputError",
    "LiveAgent",
    "Message",
    "Offer",
    "ProtocolError",
    "Result",
    "Setting",
    "Setup",
    "SimulatedWorld",
    "Table",
    "World",
    "__version__",
    "algorithms",
    "connect",
    "connect_async",
    "data",
    "evaluate",
    "figures",
    "load",
    "merge",
    "pack",
    "register",
    "reproduce",
    "run",
    "testing",
    "unpack",
]
