"""Your own algorithms and worlds: subclass ``Agent``, ``Coordinator`` and ``World``."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _posse
from ._codec import pack, unpack
from ._errors import ConfigError, DecodeError, ProtocolError

Floats = npt.NDArray[np.float64]


class Setup(NamedTuple):
    """What an agent is told about itself and its federation."""

    #: The number of the agent, from 0.
    id: int
    #: How many features an arm has.
    dimension: int
    #: How many agents there are.
    agents: int
    #: How many interactions are expected, over all agents.
    horizon: int
    #: The seed of the federation.
    seed: int


class Message(NamedTuple):
    """A message with the number of statistics in it, by which its cost is counted.

    Bytes alone count as one number for each eight of them. A message with ``scalars=0`` is counted as control, as receipts
    and requests are.
    """

    #: What is sent; ``posse.pack`` makes bytes of most things.
    data: bytes
    #: How many numbers the data holds.
    scalars: int = 0


class _Stateful:
    """Saves all attributes by itself."""

    def _identity(self) -> Any:
        raise NotImplementedError

    def save(self) -> bytes:
        """Encode everything that a restored object needs to go on with the same bits.

        By default all attributes, which must then be what ``posse.pack`` takes.

        Returns
        -------
        bytes
            What ``restore`` takes.
        """
        own = {key: value for key, value in vars(self).items() if key not in ("setup", "dimension")}
        try:
            return pack([self._identity(), own])
        except TypeError as error:
            raise TypeError(f"{type(self).__name__} cannot be saved: {error}, or override save and restore") from None

    def restore(self, state: bytes) -> None:
        """Go on from a state that an object of the same settings saved.

        Parameters
        ----------
        state : bytes
            What ``save`` returned.

        Raises
        ------
        DecodeError
            The bytes are no state of such an object. Nothing has changed.
        """
        value = unpack(state)
        if not (isinstance(value, list) and len(value) == 2 and isinstance(value[1], dict)):
            raise DecodeError(f"this is no state of {type(self).__name__}")
        identity, own = value
        if identity != self._identity():
            raise DecodeError(f"this is the state of another {type(self).__name__}: {identity}")
        if set(own) != set(vars(self)) - {"setup", "dimension"}:
            raise DecodeError(f"this is the state of another version of {type(self).__name__}: its attributes differ")
        vars(self).update(own)


class Coordinator(_Stateful, ABC):
    """The place where what agents say comes together; subclass it for an algorithm of your own.

    The simulator makes one with the number of features and those settings of the algorithm that its ``__init__`` takes by
    name. Methods return letters: pairs of an agent's number, or None for all that have joined, and a message.

    Parameters
    ----------
    dimension : int
        How many features an arm has.
    """

    dimension: int

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension

    def _identity(self) -> Any:
        return self.dimension

    def join(self, agent: int, returning: bool, now: float) -> Iterable[tuple[int | None, bytes | Message]]:
        """Take note that an agent joins.

        Parameters
        ----------
        agent : int
            The number of the agent.
        returning : bool
            Whether it comes back with its state to a coordinator that lost part of its history. If not, it knows nothing:
            it is new, or lost its state.
        now : float
            The time in seconds.

        Returns
        -------
        iterable of tuple
            What to send, and to whom; by default nothing.
        """
        return ()

    def leave(self, agent: int, now: float) -> Iterable[tuple[int | None, bytes | Message]]:
        """Take note that an agent leaves for good. Returns letters, by default none."""
        return ()

    @abstractmethod
    def receive(
        self, agent: int, message: bytes, now: float
    ) -> Iterable[tuple[int | None, bytes | Message]]:
        """Take in a message of an agent.

        Every message arrives once, in the order in which its agent sent it, whatever the links do.

        Parameters
        ----------
        agent : int
            The number of the agent.
        message : bytes
            What the agent sent.
        now : float
            The time in seconds.

        Returns
        -------
        iterable of tuple
            What to send, and to whom.

        Raises
        ------
        ProtocolError
            The message makes no sense. Nothing may have changed then.
        """

    def tick(self, now: float) -> Iterable[tuple[int | None, bytes | Message]]:
        """Do what is due. Called when ``deadline`` has passed; returns letters, by default none."""
        return ()

    def deadline(self) -> float | None:
        """The time in seconds at which ``tick`` has something to do, or None."""
        return None

    @abstractmethod
    def inspect(self) -> dict[str, Any]:
        """What the coordinator holds.

        Returns
        -------
        dict
            ``observations``: how many observations of all agents are in it; ``version``: how many times what it shares has
            changed; ``information``, if it is measured otherwise than by their number.
        """


class Agent(_Stateful, ABC):
    """A learner that chooses among arms; subclass it for an algorithm of your own.

    A subclass is an algorithm: ``posse.run``, ``posse.Federation`` and ``posse.testing.check`` take the class where they take
    a name. Its settings are the keyword arguments of its ``__init__``, each with a default.

    Parameters
    ----------
    setup : Setup
        What the agent is told about itself and its federation.

    Attributes
    ----------
    name : str
        The name in experiments and results, a class attribute. By default the name of the class in lower case, with hyphens.
    coordinator : type of Coordinator or None
        The coordinator of the algorithm, a class attribute. None if agents never speak.
    joins_at_start : bool
        Whether all agents join before the first interaction, a class attribute; by default each with its first.
    setup : Setup
        What ``__init__`` was given.

    Examples
    --------
    >>> import posse
    >>> class FirstArm(posse.Agent):
    ...     '''Always takes the first arm.'''
    ...     def choose(self, arms, user):
    ...         return 0
    ...     def learn(self, arm, reward, user):
    ...         return None
    >>> result = posse.run({"horizon": 100, "agents": 2, "algorithm": [{"name": FirstArm}, {"name": "lin-ucb"}]})
    >>> first, ucb = result.summary["regret"]
    >>> bool(first > ucb)
    True
    """

    name: ClassVar[str] = ""
    coordinator: ClassVar[type[Coordinator] | None] = None
    joins_at_start: ClassVar[bool] = False
    setup: Setup
    _prepares: ClassVar[bool] = False

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Note whether the subclass asks before it chooses."""
        super().__init_subclass__(**keywords)
        cls._prepares = cls.prepare is not Agent.prepare

    def _identity(self) -> Any:
        return list(self.setup)

    def generator(self, *numbers: int) -> np.random.Generator:
        """Random numbers that follow from the seed, the agent and ``numbers``, such as the number of the choice.

        The same numbers give the same generator, so that it need not be saved.

        Parameters
        ----------
        *numbers : int
            What the generator is for.

        Returns
        -------
        numpy.random.Generator
            A new generator.
        """
        return np.random.default_rng([self.setup.seed, self.setup.id, *numbers])

    def prepare(self, arms: Floats, user: int, now: float) -> bytes | Message | None:
        """Look at an offer before choosing from it: perhaps there is a question for the coordinator.

        Parameters
        ----------
        arms : numpy.ndarray, shape (n_arms, dimension)
            The offer that ``choose`` is called with next.
        user : int
            The user that the choice is for.
        now : float
            The time in seconds.

        Returns
        -------
        bytes, Message or None
            The question, or by default None. The answer may come before ``choose`` is called, or later.
        """
        return None

    @abstractmethod
    def choose(self, arms: Floats, user: int) -> int | tuple[int, float | None]:
        """Choose one of some arms.

        Parameters
        ----------
        arms : numpy.ndarray, shape (n_arms, dimension)
            A row of features for each arm: at least one, and all finite.
        user : int
            The user that the choice is for.

        Returns
        -------
        int or tuple of int and float
            The index of the chosen arm, and with which probability it is chosen, if that is known.
        """

    @abstractmethod
    def learn(self, arm: Floats, reward: float, user: int) -> bytes | Message | None:
        """Learn what an arm earned.

        Parameters
        ----------
        arm : numpy.ndarray, shape (dimension,)
            The features of the arm that was played.
        reward : float
            What it gave.
        user : int
            The user that it was chosen for.

        Returns
        -------
        bytes, Message or None
            What the agent has to tell the coordinator about it, if anything.
        """

    def receive(self, message: bytes) -> bytes | Message | None:
        """Take in a message of the coordinator.

        Every message arrives once and in order, whatever the links do.

        Parameters
        ----------
        message : bytes
            What the coordinator sent.

        Returns
        -------
        bytes, Message or None
            An answer, if there is one.

        Raises
        ------
        ProtocolError
            The message makes no sense. Nothing may have changed then.
        """
        raise ProtocolError(f"{type(self).__name__} takes no messages")

    def inspect(self) -> dict[str, Any] | None:
        """What the agent holds, for those who count.

        Returns
        -------
        dict or None
            ``unsent``: own observations that were not sent; ``in_flight``: None, or a tuple of the number of the upload on
            its way and its observations; ``shared``: observations of all agents that it heard of; ``version``: the newest
            state of the coordinator that it has; ``withheld`` and ``information``. None, the default, stands for an agent
            that never sends.
        """
        return None


class Offer(NamedTuple):
    """What a world offers at one interaction.

    The reward of an arm is its mean plus ``noise``; or, if there is a ``coin``, 1 if the coin is below the mean and 0
    otherwise. One draw for all arms: what an algorithm chooses does not change the world.
    """

    #: The features of the arms, shape (n_arms, dimension).
    arms: npt.ArrayLike
    #: The expected reward of each arm.
    means: npt.ArrayLike
    #: What is added to the mean of the arm that is chosen.
    noise: float = 0.0
    #: A number between 0 and 1, for worlds whose rewards are 0 or 1.
    coin: float | None = None
    #: The user that is chosen for, if agents serve several.
    user: int | None = None


class World(ABC):
    """Where agents choose; subclass it for a world of your own.

    ``posse.run`` takes the class as the ``kind`` of its environment. Its settings are the keyword arguments of its
    ``__init__``, each with a default. ``offer`` must give the same for the same step, whatever was asked before: every
    algorithm meets the same world, and results can be repeated.

    Parameters
    ----------
    agents : int
        How many agents there are.
    seed : int
        The seed of the run.

    Attributes
    ----------
    name : str
        The kind in experiments and results, a class attribute. By default the name of the class in lower case, with hyphens.
    dimension : int
        How many features an arm has; set it in ``__init__`` or in the class.
    length : int or None
        How many interactions there are, if they are recorded.

    Examples
    --------
    >>> import posse
    >>> class TwoArms(posse.World):
    ...     '''The second arm pays more.'''
    ...     dimension = 2
    ...     def offer(self, step, agent):
    ...         return posse.Offer([[1, 0], [0, 1]], [0.2, 0.8], coin=self.generator(step).uniform())
    >>> result = posse.run({"horizon": 200, "agents": 2, "environment": {"kind": TwoArms}, "algorithm": [{"name": "lin-ucb"}]})
    >>> bool(result.summary["reward"][0] > 100)
    True
    """

    name: ClassVar[str] = ""
    dimension: int
    length: int | None = None

    def __init__(self, agents: int, seed: int) -> None:
        self.agents = agents
        self.seed = seed

    def generator(self, *numbers: int) -> np.random.Generator:
        """Random numbers that follow from the seed and ``numbers``, such as the step.

        Parameters
        ----------
        *numbers : int
            What the generator is for.

        Returns
        -------
        numpy.random.Generator
            A new generator.
        """
        return np.random.default_rng([self.seed, *numbers])

    @abstractmethod
    def offer(self, step: int, agent: int) -> Offer:
        """What an agent meets at an interaction.

        Parameters
        ----------
        step : int
            The number of the interaction over all agents, from 0.
        agent : int
            The agent that chooses.

        Returns
        -------
        Offer
            Arms, means and what turns a mean into a reward.
        """

    def turn(self, step: int) -> int | None:
        """The agent that acts at an interaction, if the world decides that; by default None."""
        return None

    def parameters(self, agent: int) -> npt.ArrayLike | None:
        """The true parameters of an agent, if rewards are linear in the features; by default None."""
        return None


def register(*classes: type[Agent] | type[World]) -> None:
    """Make own algorithms and worlds known by their names, for experiments in files and results that are loaded.

    ``posse.run`` and ``posse.Federation`` do so by themselves with the classes they are given.

    Parameters
    ----------
    *classes : type of Agent or type of World
        The classes. A class takes the place of another with the same name.

    Raises
    ------
    ConfigError
        The name is one of posse's own or cannot be written in files, or a setting has no default.
    """
    for own in classes:
        name_of(own)


def name_of(thing: Any) -> str:
    """The name that stands for a class in experiments; names stand for themselves."""
    if isinstance(thing, str):
        return thing
    if not (isinstance(thing, type) and issubclass(thing, (Agent, World))):
        raise ConfigError(f"{thing!r} is neither a name nor a class of posse.Agent or posse.World")
    kind = "algorithm" if issubclass(thing, Agent) else "world"
    name = thing.name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", "-", thing.__name__).lower()
    if inspect.isabstract(thing):
        missing = ", ".join(sorted(thing.__abstractmethods__))
        raise ConfigError(f"{thing.__name__} is not finished: it has no {missing}")
    summary = (inspect.getdoc(thing) or "").partition("\n")[0]
    _posse.register(kind, thing, name, summary, _settings(thing), getattr(thing, "joins_at_start", False))
    return name


def make_agent(own: type[Agent], setup: tuple[int, int, int, int, int], settings: Mapping[str, Any]) -> Agent:
    """Called by Rust for every agent."""
    return own(Setup(*setup), **settings)


def make_coordinator(own: type[Agent], dimension: int, settings: Mapping[str, Any]) -> Coordinator:
    """Called by Rust for the coordinator."""
    assert own.coordinator is not None
    taken = inspect.signature(own.coordinator).parameters
    return own.coordinator(dimension, **{key: value for key, value in settings.items() if key in taken})


def _settings(own: type[Agent] | type[World]) -> list[tuple[str, str, str, Any]]:
    skipped = 1 if issubclass(own, Agent) else 2
    described = []
    for parameter in list(inspect.signature(own).parameters.values())[skipped:]:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.default is parameter.empty:
            raise ConfigError(f"`{parameter.name}` of {own.__name__} has no default: every setting needs one")
        kind = _kind(parameter)
        described.append((parameter.name, kind, f"a setting of {own.__name__}", parameter.default))
    return described


def _kind(parameter: inspect.Parameter) -> str:
    """The kind of value that a setting takes, by its default or, if that is None, by its annotation."""
    kinds = {bool: "switch", int: "whole", float: "number", str: "text"}
    if parameter.default is not None:
        for kind, word in kinds.items():
            # An annotation says that 1 stands for 1.0.
            if isinstance(parameter.default, kind):
                annotated = str(parameter.annotation)
                return "number" if word == "whole" and "float" in annotated else word
        raise ConfigError(
            f"the default of `{parameter.name}` is {parameter.default!r}: settings are numbers, texts or switches"
        )
    annotated = str(parameter.annotation)
    return next((word for kind, word in kinds.items() if kind.__name__ in annotated), "number")
