"""posse in the manner of scikit-learn. Needs the package ``scikit-learn``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_is_fitted

from ._blocks import blocks, seeded
from ._errors import InputError
from ._posse import Federation

__all__ = ["Bandit"]


class Bandit(BaseEstimator):
    """A contextual bandit as an estimator: every arm has parameters of its own.

    Parameters
    ----------
    n_arms : int
        How many arms there are; they are called 0, 1 and so on.
    algorithm : str, optional
        The algorithm, as ``posse.Federation`` takes it.
    settings : dict, optional
        Settings of the algorithm.
    random_state : int, optional
        The seed of the federation.

    Examples
    --------
    >>> import numpy as np, posse.sklearn
    >>> bandit = posse.sklearn.Bandit(n_arms=2).partial_fit([[0.1], [0.9]], actions=[0, 1], rewards=[0.0, 1.0])
    >>> bandit.predict([[0.9]]).shape
    (1,)
    """

    def __init__(
        self,
        n_arms: int = 2,
        algorithm: str = "lin-ucb",
        settings: dict[str, Any] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.n_arms, self.algorithm = n_arms, algorithm
        self.settings, self.random_state = settings, random_state

    def fit(self, X: npt.ArrayLike, actions: npt.ArrayLike, rewards: npt.ArrayLike) -> Bandit:
        """Forget everything and learn from rows of contexts, the arms that were played in them, and their rewards."""
        contexts = check_array(X, dtype="float64")
        self.n_features_in_ = contexts.shape[1]
        dimension = self.n_arms * (self.n_features_in_ + 1)
        self.federation_ = Federation(
            self.algorithm, dimension=dimension, seed=seeded(self.random_state), **(self.settings or {})
        )
        return self.partial_fit(contexts, actions, rewards)

    def partial_fit(self, X: npt.ArrayLike, actions: npt.ArrayLike, rewards: npt.ArrayLike) -> Bandit:
        """Learn from further rows."""
        if not hasattr(self, "federation_"):
            return self.fit(X, actions, rewards)
        contexts = self._checked(X)
        agent = self.federation_.agent(0)
        for context, action, reward in zip(contexts, np.asarray(actions), np.asarray(rewards), strict=True):
            if not 0 <= action < self.n_arms:
                raise InputError(f"there is no arm {action}: there are {self.n_arms}, from 0 on")
            agent.learn(blocks(context, self.n_arms)[action], float(reward))
        return self

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The arm that would be chosen in each row."""
        check_is_fitted(self, "federation_")
        agent = self.federation_.agent(0)
        chosen = [agent.choose(blocks(context, self.n_arms)) for context in self._checked(X)]
        return np.array(chosen, dtype=np.int64)

    def _checked(self, X: npt.ArrayLike) -> Any:
        contexts = check_array(X, dtype="float64")
        if contexts.shape[1] != self.n_features_in_:
            raise InputError(f"expected {self.n_features_in_} features, got {contexts.shape[1]}")
        return contexts
