"""Worlds of posse as environments of Gymnasium. Needs the package ``gymnasium``.

Importing this module makes ``gymnasium.make("posse/World-v0", kind="linear")`` work.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ._errors import InputError
from ._posse import SimulatedWorld

__all__ = ["WorldEnv"]


class WorldEnv(gymnasium.Env[Any, Any]):
    """A world of posse as an environment: the observation is the features of the arms, the action is the index of one.

    ``info`` holds the ``regret`` of the last action, and ``user`` and ``means`` of the offer that is shown. What is chosen
    does not change what comes next.

    Parameters
    ----------
    kind : str or type of posse.World, optional
        The kind of world, as ``posse.SimulatedWorld`` takes it.
    horizon : int, optional
        How many interactions an episode has. Recorded worlds end where the record does.
    agents : int, optional
        How many agents there are; they take turns.
    **settings
        Settings of the world.

    Examples
    --------
    >>> import gymnasium, posse.gymnasium
    >>> environment = gymnasium.make("posse/World-v0", kind="linear", dimension=3, arms=4)
    >>> arms, info = environment.reset(seed=7)
    >>> arms.shape
    (4, 3)
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, kind: Any = "linear", *, horizon: int = 1000, agents: int = 1, **settings: Any) -> None:
        self._made: dict[str, Any] = {"kind": kind, "agents": agents, **settings}
        self._world = SimulatedWorld(**self._made, seed=0)
        self._horizon = min(horizon, self._world.length or horizon)
        self._step = 0
        arms, self._means, self._rewards, self._user = self._world.offer(0)
        self.observation_space = spaces.Box(-np.inf, np.inf, arms.shape, np.float64)
        self.action_space = spaces.Discrete(arms.shape[0])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in the world of this seed, or in a new one of the last generator."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**32)) if seed is None else seed
        self._world = SimulatedWorld(**self._made, seed=drawn)
        self._step = 0
        return self._look(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play an arm. Returns the next offer, the reward, whether the record or the episode is over, and ``info``."""
        action = int(action)
        if not 0 <= action < len(self._rewards):
            raise InputError(f"there is no arm {action}: there are {len(self._rewards)}, from 0 on")
        reward = float(self._rewards[action])
        regret = float(self._means.max() - self._means[action])
        self._step += 1
        over = self._step >= self._horizon
        # The last observation is that of the last offer: there is none after it.
        arms = self._arms if over else self._look()
        ends = over and self._world.length is not None and self._step >= self._world.length
        return arms, reward, ends, over and not ends, {**self._info(), "regret": regret}

    def _look(self) -> Any:
        agent = self._step % self._world.agents
        self._arms, self._means, self._rewards, self._user = self._world.offer(self._step, agent)
        return self._arms

    def _info(self) -> dict[str, Any]:
        return {"means": self._means, "user": self._user}


if "posse/World-v0" not in gymnasium.registry:
    gymnasium.register("posse/World-v0", entry_point="posse.gymnasium:WorldEnv")
