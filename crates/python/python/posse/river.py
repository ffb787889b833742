"""posse as a bandit policy of river. Needs the package ``river``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import river.bandit.base

from ._blocks import blocks
from ._errors import InputError
from ._posse import Federation

__all__ = ["Policy"]


class Policy(river.bandit.base.ContextualPolicy):
    """An algorithm of posse as a contextual policy of river: every arm has parameters of its own.

    Parameters
    ----------
    arms : sequence
        The ids of all arms.
    features : sequence of str
        The keys of a context.
    algorithm : str, optional
        The algorithm, as ``posse.Federation`` takes it.
    seed : int, optional
        The seed of the federation.
    settings : dict, optional
        Settings of the algorithm.
    reward_obj, reward_scaler, burn_in
        As for every policy of river.

    Examples
    --------
    >>> import posse.river
    >>> policy = posse.river.Policy(arms=["left", "right"], features=["age"], algorithm="lin-ucb")
    >>> arm = policy.pull(["left", "right"], context={"age": 0.3})
    >>> policy.update(arm, {"age": 0.3}, 1.0)
    """

    def __init__(
        self,
        arms: Sequence[Any],
        features: Sequence[str],
        algorithm: str = "lin-ucb",
        seed: int = 0,
        settings: dict[str, Any] | None = None,
        reward_obj: Any = None,
        reward_scaler: Any = None,
        burn_in: int = 0,
    ) -> None:
        super().__init__(reward_obj=reward_obj, reward_scaler=reward_scaler, burn_in=burn_in)
        self.arms, self.features, self.algorithm = arms, features, algorithm
        self.seed, self.settings = seed, settings
        dimension = len(arms) * (len(features) + 1)
        self._federation = Federation(algorithm, dimension=dimension, seed=seed, **(settings or {}))
        self._agent = self._federation.agent(0)
        self._places = {arm: place for place, arm in enumerate(arms)}

    def _rows(self, arm_ids: Sequence[Any], context: dict[str, float] | None) -> Any:
        unknown = [arm for arm in arm_ids if arm not in self._places]
        if unknown:
            raise InputError(f"{unknown[0]!r} is none of the arms: {', '.join(map(repr, self.arms))}")
        numbers = [(context or {}).get(key, 0.0) for key in self.features]
        return blocks(numbers, len(self.arms))[[self._places[arm] for arm in arm_ids]]

    def _pull(self, arm_ids: list[Any], context: dict[str, float] | None = None) -> Any:
        return arm_ids[self._agent.choose(self._rows(arm_ids, context))]

    def update(self, arm_id: Any, context: dict[str, float] | None, *reward_args: Any, **reward_kwargs: Any) -> None:
        """Learn what an arm earned in a context; the reward is the first argument after it."""
        self._agent.learn(self._rows([arm_id], context)[0], float(np.asarray(reward_args[0])))
        super().update(arm_id, context, *reward_args, **reward_kwargs)

    def learn_one(self, x: dict[str, float], arm: Any, reward: float) -> None:
        """Learn one observation, in the manner of river's models."""
        self.update(arm, x, reward)

    def predict_one(self, x: dict[str, float]) -> Any:
        """The arm that would be chosen in a context, in the manner of river's models."""
        return self._pull(list(self.arms), x)
