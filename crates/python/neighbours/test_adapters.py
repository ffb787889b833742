"""posse works inside coba, river, scikit-learn and Gymnasium, and coba's environments inside posse."""

from __future__ import annotations

import pickle
from typing import Any

import coba
import gymnasium
import numpy as np
import pytest
import river.bandit
from gymnasium.utils.env_checker import check_env
from sklearn.base import clone

import posse
import posse.coba
import posse.gymnasium
import posse.river
import posse.sklearn


def synthetic(interactions: int = 300) -> Any:
    return coba.Environments.from_linear_synthetic(interactions, n_actions=5, n_context_features=3, n_action_features=3, seed=2)


def test_a_learner_runs_in_an_experiment_of_coba_and_learns() -> None:
    learners = [
        posse.coba.Learner("lin-ucb", features=["a", "ax"]),
        posse.coba.Learner("async-lin-ucb", features=["a", "ax"], agents=3, threshold=1.5),
        coba.RandomLearner(),
    ]
    result = coba.Experiment(synthetic(), learners).run(quiet=True)
    found = {str(key): value for key, value in _rewards(result).items()}
    alone, together, random = found["posse lin-ucb"], found["posse async-lin-ucb"], found["Random"]
    assert alone > random + 0.05 and together > random + 0.05, found
    assert pickle.loads(pickle.dumps(learners[0])).params["family"] == "posse lin-ucb"


def _rewards(result: Any) -> dict[str, float]:
    """The mean reward of each learner, by its family."""
    learners = {row["learner_id"]: row["family"] for row in result.learners.to_dicts()}
    sums: dict[str, list[float]] = {}
    for row in result.interactions.to_dicts():
        sums.setdefault(learners[row["learner_id"]], []).append(row["reward"])
    return {family: float(np.mean(rewards)) for family, rewards in sums.items()}


def test_an_environment_of_coba_is_a_world() -> None:
    environment = synthetic()[0]
    world = posse.coba.world(environment, features=["a", "ax"])
    result = posse.run(
        {
            "horizon": 300,
            "agents": 2,
            "environment": {"kind": world},
            "algorithm": [{"name": "lin-ucb"}, {"name": "async-lin-ucb"}],
        }
    )
    assert not result.failures
    # The interactions are coba's: the best arm of each is worth what coba's rewards say.
    arms, means, rewards, _ = posse.SimulatedWorld(world, agents=2).offer(7)
    interaction = list(environment.read())[7]
    paid = interaction["rewards"]
    expected = [paid(action) for action in interaction["actions"]] if callable(paid) else list(paid)
    assert np.allclose(means, expected) and np.array_equal(means, rewards) and len(arms) == 5
    with pytest.raises(posse.ConfigError, match="fewer interactions"):
        posse.run({"horizon": 301, "agents": 2, "environment": {"kind": world}, "algorithm": [{"name": "lin-ucb"}]})


def test_a_policy_of_river_pulls_and_updates() -> None:
    policy = posse.river.Policy(arms=["left", "right"], features=["age"], settings={"regularization": 1.0})
    generator = np.random.default_rng(3)
    right = 0
    for step in range(400):
        context = {"age": float(generator.uniform(-1, 1))}
        arm = policy.pull(["left", "right"], context=context)
        good = (arm == "right") == (context["age"] > 0)
        right += good and step >= 200
        policy.update(arm, context, float(good))
    assert right > 180
    assert policy.predict_one({"age": 0.9}) == "right"
    policy.learn_one({"age": 0.9}, "right", 1.0)
    assert policy.ranking and isinstance(policy, river.bandit.base.ContextualPolicy)
    with pytest.raises(posse.InputError, match="none of the arms"):
        policy.pull(["middle"], context={"age": 0.0})


def test_an_estimator_of_scikit_learn_is_cloned_and_fitted_in_parts() -> None:
    bandit = posse.sklearn.Bandit(n_arms=3, settings={"regularization": 0.5}, random_state=1)
    generator = np.random.default_rng(4)
    contexts = generator.normal(size=(600, 2))
    actions = generator.integers(3, size=600)
    best = np.where(contexts[:, 0] > 0, 2, 0)
    fitted = clone(bandit).partial_fit(contexts[:300], actions[:300], (actions == best)[:300])
    fitted.partial_fit(contexts[300:], actions[300:], (actions == best)[300:])
    assert (fitted.predict(contexts[:200]) == best[:200]).mean() > 0.9
    assert not hasattr(bandit, "federation_")
    with pytest.raises(posse.InputError, match="there is no arm 7"):
        fitted.partial_fit(contexts[:1], [7], [1.0])


# Features have no bounds, which the checker finds unusual.
@pytest.mark.filterwarnings("ignore:.*infinity:UserWarning")
def test_worlds_are_environments_of_gymnasium() -> None:
    environment = gymnasium.make("posse/World-v0", kind="linear", dimension=3, arms=4, horizon=50)
    check_env(environment.unwrapped, skip_render_check=True)
    arms, info = environment.reset(seed=7)
    agent = posse.Federation("lin-ucb", dimension=3).agent(0)
    total, regret, over = 0.0, 0.0, False
    while not over:
        arm = agent.choose(arms)
        played = arms[arm]
        arms, reward, ended, truncated, info = environment.step(arm)
        agent.learn(played, reward)
        total, regret, over = total + reward, regret + info["regret"], ended or truncated
    # The same world in the simulator pays the same.
    settings = {"horizon": 50, "agents": 1, "environment": {"dimension": 3, "arms": 4}, "algorithm": [{"name": "lin-ucb"}]}
    summary = posse.run(settings, seeds=range(7, 8)).summary
    assert total == pytest.approx(summary["reward"][0]) and regret == pytest.approx(summary["regret"][0])
