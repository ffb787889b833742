"""posse in coba's experiments, and coba's environments in posse's. Needs the package ``coba``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import coba
import coba.encodings
import numpy as np

from ._errors import ConfigError
from ._own import Offer, World
from ._posse import Federation

__all__ = ["Learner", "world"]

#: A constant, the features of the action, and their products with those of the context, as coba's own learners.
FEATURES: Sequence[int | str] = (1, "a", "ax")


class _Encoder:
    """Contexts and actions as features, by coba's own encoder."""

    def __init__(self, features: Sequence[int | str]) -> None:
        self.features = list(features)
        self._encoder = coba.encodings.InteractionsEncoder(self.features)
        self._plain: Any = None

    def __call__(self, context: Any, actions: Sequence[Any]) -> Any:
        encoder = self._encoder
        if context is None or context == [] or context == ():
            if self._plain is None:
                words = [f.replace("x", "") if isinstance(f, str) else f for f in self.features]
                self._plain = coba.encodings.InteractionsEncoder(list(dict.fromkeys(filter(None, words))))
            encoder, context = self._plain, []
        rows = [encoder.encode(x=context, a=action) for action in actions]
        if rows and isinstance(rows[0], dict):
            raise ConfigError("sparse features cannot be used: make the environment dense, for example with .dense(...)")
        return np.asarray(rows, dtype=np.float64)


class Learner(coba.Learner):
    """An algorithm of posse as a learner of coba.

    Interactions are dealt to the agents in turn, and what agents have to say is delivered after each.

    Parameters
    ----------
    algorithm : str or type of posse.Agent, optional
        The algorithm, as ``posse.Federation`` takes it.
    features : sequence, optional
        Which products of context features (``x``) and action features (``a``) an arm consists of, as coba's own learners
        take it.
    agents : int, optional
        How many agents learn together.
    seed : int, optional
        The seed of the federation.
    horizon : int, optional
        How many interactions are expected.
    **settings
        Settings of the algorithm.

    Examples
    --------
    >>> import coba, posse.coba
    >>> environments = coba.Environments.from_linear_synthetic(100, n_actions=3, seed=1)
    >>> learner = posse.coba.Learner("async-lin-ucb", agents=4)
    >>> result = coba.Experiment(environments, learner).run(quiet=True)
    """

    def __init__(
        self,
        algorithm: Any = "lin-ucb",
        features: Sequence[int | str] = FEATURES,
        *,
        agents: int = 1,
        seed: int = 0,
        horizon: int = 10_000,
        **settings: Any,
    ) -> None:
        self._algorithm = algorithm
        self._encode = _Encoder(features)
        self._made: dict[str, Any] = {"agents": agents, "seed": seed, "horizon": horizon, **settings}
        self._agents = agents
        self._turn = 0
        self._federation: Federation | None = None

    @property
    def params(self) -> Mapping[str, Any]:
        """What coba's tables show about the learner."""
        name = self._algorithm if isinstance(self._algorithm, str) else self._algorithm.__name__
        return {"family": f"posse {name}", "features": self._encode.features, **self._made}

    def _agent(self, dimension: int) -> Any:
        if self._federation is None:
            self._federation = Federation(self._algorithm, dimension=dimension, **self._made)
        return self._federation.agent(self._turn % self._agents)

    def predict(self, context: Any, actions: Any) -> tuple[Any, float]:
        """Choose one of the actions. Returns it with its probability, as far as that is known."""
        arms = self._encode(context, actions)
        arm, propensity = self._agent(arms.shape[1]).choose_with_propensity(arms)
        return actions[arm], 1.0 if propensity is None else propensity

    def learn(self, context: Any, action: Any, reward: float, probability: float, **kwargs: Any) -> None:
        """Learn what an action earned."""
        arms = self._encode(context, [action])
        self._agent(arms.shape[1]).learn(arms[0], float(reward))
        self._turn += 1
        if self._agents > 1:
            assert self._federation is not None
            self._federation.exchange()


def world(
    environment: Any, features: Sequence[int | str] = FEATURES, name: str = "coba"
) -> type[World]:
    """An environment of coba as a world of posse.

    Its interactions are read once and kept in memory; interaction ``step`` is the ``step``-th of them.

    Parameters
    ----------
    environment : coba environment
        Anything with ``read``, whose interactions have a context, actions and the reward of each action.
    features : sequence, optional
        Which products of context features (``x``) and action features (``a``) an arm consists of.
    name : str, optional
        The name in experiments and results.

    Returns
    -------
    type of posse.World
        The ``kind`` of an experiment's environment, or the argument of ``posse.SimulatedWorld``.
    """
    encode, interactions = _Encoder(features), []
    for interaction in environment.read():
        actions, rewards = interaction["actions"], interaction["rewards"]
        paid = [rewards(action) for action in actions] if callable(rewards) else list(rewards)
        interactions.append((encode(interaction["context"], actions), np.asarray(paid, dtype=np.float64)))
    if not interactions:
        raise ConfigError("the environment has no interactions")

    class CobaWorld(World):
        """An environment of coba."""

        dimension = interactions[0][0].shape[1]
        length = len(interactions)

        def offer(self, step: int, agent: int) -> Offer:
            return Offer(*interactions[step])

        def turn(self, step: int) -> int:
            return step % self.agents

    CobaWorld.name = name
    return CobaWorld
