"""Agents of running federations."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, TypedDict

import numpy.typing as npt

from . import _posse
from ._errors import ConfigError


class Chosen(NamedTuple):
    """An arm that a live agent chose."""

    #: The name of the choice, by which its reward is told. Keep it with what you show to the user.
    id: str
    #: The index of the arm in the offer.
    arm: int
    #: The probability with which it was chosen, where that is known: 1 for deterministic algorithms.
    propensity: float | None


class Health(TypedDict):
    """Counts of a live agent and the state of its link; counts are since the start of the process."""

    #: The number of the agent's life.
    life: int
    #: Whether the coordinator has answered the last hello.
    connected: bool
    #: Whether the coordinator has answered everything that was said.
    settled: bool
    #: What went wrong last, until it is right again.
    trouble: str | None
    #: Another process speaks for this agent, or its life has ended: it takes no rewards until it gets a new life.
    superseded: str | None
    #: Lives that ended because the coordinator refused one of their messages for good.
    set_aside: int
    #: The newest such refusal.
    last_refusal: str | None
    #: Choices that wait for their rewards.
    pending: int
    #: Choices made.
    choices: int
    #: Rewards learned from.
    rewards: int
    #: Choices that expired without a reward.
    expired: int
    #: Frames with messages sent, repetitions included.
    uplinks: int
    #: Messages received.
    downlinks: int
    #: Bytes of frames, both ways.
    bytes: int


class LiveAgent:
    """An agent of a running federation; ``posse.connect`` makes it.

    It chooses from memory, coordinator or not, and learns whenever a reward comes. Threads may share an agent. A process that
    is forked must connect in the child: see ``posse.connect``. Used as a context manager, it is closed in the end.
    """

    def __init__(self, connection: _posse.Connection) -> None:
        self._connection = connection

    @property
    def id(self) -> int:
        """The number that the federation knows this agent by."""
        return self._connection.id()

    @property
    def dimension(self) -> int:
        """How many features an arm has."""
        return self._connection.dimension()

    def choose(self, arms: npt.ArrayLike, *, user: int = 0, wait: float = 0.0) -> Chosen:
        """Choose one of some arms.

        Parameters
        ----------
        arms : array_like, shape (n_arms, dimension)
            A row of features for each arm.
        user : int, optional
            The user that the choice is for.
        wait : float, optional
            How many seconds to wait at most for news of the coordinator, if the algorithm asks for them before it chooses.
            By default the choice never waits.

        Returns
        -------
        Chosen
            The arm, and the name of the choice.

        Raises
        ------
        InputError
            The arms cannot be used.
        ConnectError
            The agent was closed, or connected before the process forked.
        """
        return Chosen(*self._connection.choose(arms, user, wait))

    def reward(self, id: str, reward: float) -> None:
        """Learn the reward of a choice, at once or days later.

        Parameters
        ----------
        id : str
            The name of the choice.
        reward : float
            What it gave.

        Raises
        ------
        InputError
            The choice does not wait for a reward, or the reward cannot be used.
        ConnectError
            Nothing that this agent learns would reach the coordinator.
        """
        self._connection.reward(id, reward)

    def health(self) -> Health:
        """Counts and the state of the link at this moment.

        Returns
        -------
        dict
            See ``Health``.
        """
        return self._connection.status()

    def privacy(self) -> dict[str, Any] | None:
        """What may be claimed about privacy so far.

        Returns
        -------
        dict or None
            The accountant's statement, or None in a federation that promises nothing.
        """
        statement = self._connection.privacy()
        if statement is None:
            return None
        document: dict[str, Any] = json.loads(statement)
        return document

    def settle(self, timeout: float = 10.0) -> bool:
        """Wait until the coordinator has answered everything that was said so far.

        Parameters
        ----------
        timeout : float, optional
            How many seconds to wait at most.

        Returns
        -------
        bool
            Whether it has.
        """
        return self._connection.settle(timeout)

    def take_new_life(self) -> None:
        """Give an agent that was superseded a new life, in which its rewards count again."""
        self._connection.take_new_life()

    def close(self) -> None:
        """Stop carrying messages and save the state. Doing it twice does nothing."""
        self._connection.close()

    async def choose_async(self, arms: npt.ArrayLike, *, user: int = 0, wait: float = 0.0) -> Chosen:
        """Like ``choose``, without blocking the event loop while it waits for news."""
        if wait == 0.0:
            # From memory, in microseconds: a thread would take longer.
            return self.choose(arms, user=user)
        return await asyncio.to_thread(self.choose, arms, user=user, wait=wait)

    async def reward_async(self, id: str, reward: float) -> None:
        """Like ``reward``, without blocking the event loop while the state is written."""
        await asyncio.to_thread(self.reward, id, reward)

    async def settle_async(self, timeout: float = 10.0) -> bool:
        """Like ``settle``, without blocking the event loop."""
        return await asyncio.to_thread(self.settle, timeout)

    async def close_async(self) -> None:
        """Like ``close``, without blocking the event loop."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> LiveAgent:
        """Return the agent itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the agent."""
        self.close()

    async def __aenter__(self) -> LiveAgent:
        """Return the agent itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the agent."""
        await self.close_async()

    def __repr__(self) -> str:
        """The number of the agent."""
        return f"<posse.LiveAgent {self.id}>"

    def __reduce__(self) -> Any:
        """Refuse: an agent is one process's."""
        raise TypeError("a live agent cannot be pickled: connect in the other process, as an agent of its own")


def connect(
    url: str,
    *,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    certificate: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    state: str | os.PathLike[str] | None = None,
    federation: str | None = None,
    agent: int | None = None,
    local_features: int = 0,
    expire_after: float | None = None,
    default_reward: float | None = None,
    exchange_every: float | None = None,
    new_life: bool = False,
    privacy: Mapping[str, Any] | None = None,
    insecure: bool = False,
    timeout: float = 10.0,
) -> LiveAgent:
    """Connect an agent to a coordinator, such as ``posse serve``.

    This is the agent that ``posse agent`` and programs in Rust use. With a state it starts at once, coordinator or not.
    Without one it asks the coordinator for the rules of the federation first.

    Two processes must not be the same agent, and threads do not survive a fork. Web servers that fork workers (gunicorn, uWSGI)
    connect in the worker, after the fork, each worker with a token, an agent number and a state directory of its own; an agent
    that was connected before the fork raises ``ConnectError`` in the child and goes on in the parent.

    Parameters
    ----------
    url : str
        Where the coordinator is: ``https://host:port``, or ``http://`` without TLS.
    token : str, optional
        The secret that proves which agent this is.
    token_file : path, optional
        A file with the token instead, read again for every connection.
    ca : path, optional
        Who vouches for the coordinator's certificate (PEM). By default those whom the operating system trusts.
    certificate, key : path, optional
        The agent's own certificate and its key (PEM), where the coordinator asks for them.
    state : path, optional
        A directory for the agent's state. Without one, a restart is a new life.
    federation : str, optional
        Which federation, where there are several.
    agent : int, optional
        Who the agent is, where no tokens are asked for.
    local_features : int, optional
        How many features only this agent has, after the shared ones.
    expire_after : float, optional
        Seconds after which a choice stops waiting for its reward; by default it waits for ever.
    default_reward : float, optional
        The reward of a choice that stops waiting; without one, nothing is learned from it.
    exchange_every : float, optional
        Call every so many seconds instead of keeping a stream open, for proxies that cut streams.
    new_life : bool, optional
        Begin a new life if another process has spoken for this agent, instead of taking no more rewards.
    privacy : mapping, optional
        Join private federations only: any of ``max_epsilon``, ``max_delta``,
        ``unit`` (``"interaction"``, ``"user"`` or ``"agent"``).
    insecure : bool, optional
        Send the token without TLS to another machine.
    timeout : float, optional
        Seconds to wait at most for the rules of the federation.

    Returns
    -------
    LiveAgent
        The agent, ready to choose.

    Raises
    ------
    ConnectError
        The coordinator did not answer or refused, or the state cannot be used.
    ConfigError
        A setting is impossible.
    """
    if token is not None and token_file is not None:
        raise ConfigError("`token` and `token_file` contradict each other: keep one of them")
    if (certificate is None) != (key is None):
        raise ConfigError("`certificate` and `key` belong together: give both")
    if (token or token_file) and not insecure and not (url.startswith("https:") or _is_local(url)):
        raise ConfigError(f"{url} would send the token unencrypted: use https, or insecure=True if that is meant")
    return LiveAgent(
        _posse.open_connection(
            url,
            token=token,
            token_file=None if token_file is None else os.fspath(token_file),
            ca=_read(ca),
            certificate=_read(certificate),
            key=_read(key),
            state=None if state is None else os.fspath(state),
            federation=federation,
            agent=agent,
            local_features=local_features,
            expire_after=expire_after,
            default_reward=default_reward,
            exchange_every=exchange_every,
            new_life=new_life,
            privacy=None if privacy is None else dict(privacy),
            timeout=timeout,
        )
    )


async def connect_async(url: str, **settings: Any) -> LiveAgent:
    """Like ``connect``, without blocking the event loop.

    Parameters
    ----------
    url : str
        Where the coordinator is.
    **settings
        As for ``connect``.

    Returns
    -------
    LiveAgent
        The agent, ready to choose. ``async with`` closes it in the end.
    """
    return await asyncio.to_thread(functools.partial(connect, url, **settings))


def _read(path: str | os.PathLike[str] | None) -> bytes | None:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()


def _is_local(url: str) -> bool:
    from ipaddress import ip_address
    from urllib.parse import urlsplit

    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
