"""Algorithms and worlds of one's own run beside posse's, and are held to the same promises."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import posse
import posse.testing

Floats = npt.NDArray[np.float64]


def example() -> Any:
    path = Path(__file__).parents[1] / "examples" / "async_lin_ucb.py"
    spec = importlib.util.spec_from_file_location("async_lin_ucb", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["async_lin_ucb"] = module
    spec.loader.exec_module(module)
    return module


Copy = example().PythonAsyncLinUcb


class Greedy(posse.Agent):
    """Takes the arm with the largest estimate, and explores now and then."""

    def __init__(self, setup: posse.Setup, *, explore: float = 0.1) -> None:
        super().__init__(setup)
        self.explore = explore
        self.gram = np.eye(setup.dimension)
        self.moment = np.zeros(setup.dimension)
        self.choices = 0

    def choose(self, arms: Floats, user: int) -> int:
        generator = self.generator(self.choices)
        self.choices += 1
        if generator.uniform() < self.explore:
            # By features and not by place, because the order of arms must not matter.
            return int(np.argmax(arms @ generator.normal(size=arms.shape[1])))
        return int(np.argmax(arms @ np.linalg.solve(self.gram, self.moment)))

    def learn(self, arm: Floats, reward: float, user: int) -> None:
        self.gram += np.outer(arm, arm)
        self.moment += reward * arm


def experiment(**more: Any) -> dict[str, Any]:
    return {
        "horizon": 1500,
        "agents": 6,
        "repetitions": 2,
        "environment": {"kind": "linear", "dimension": 5, "arms": 8},
        "algorithm": [
            {"name": "async-lin-ucb", "upload_threshold": [1.5, 3.0]},
            {"name": Copy, "upload_threshold": [1.5, 3.0]},
        ],
        **more,
    }


def halves(table: posse.Table, column: str) -> tuple[list[Any], list[Any]]:
    """What the built-in algorithm and its copy have in a column."""
    own = table["algorithm"] == "python-async-lin-ucb"
    return table[column][~own].tolist(), table[column][own].tolist()


@pytest.mark.parametrize(
    "world",
    [
        {},
        {"faults": {"agent_crash": 0.005, "volatile": 0.5, "coordinator_restart": 0.002}, "horizon": 600},
    ],
    ids=["ideal", "crashes"],
)
def test_async_lin_ucb_in_python_has_the_regret_and_messages_of_the_built_in_one(world: dict[str, Any]) -> None:
    summary = posse.run(experiment(**world)).summary
    for column in ("regret", "reward", "uploads", "downloads", "control_messages"):
        if column in summary:
            built_in, own = halves(summary, column)
            assert own == built_in, column
    built_in, own = halves(summary, "messages")
    assert own == built_in and len(own) == 4 and min(own) > 10
    assert len(set(built_in)) > 1


def test_own_algorithms_share_over_hostile_links() -> None:
    hostile = {"network": {"preset": "hostile"}, "horizon": 600, "repetitions": 1}
    result = posse.run(experiment(**hostile))
    built_in, own = halves(result.summary, "regret")
    assert not result.failures and min(halves(result.summary, "messages")[1]) > 10
    # Of posse's own snapshots one that waits is replaced by a newer one, of other messages none: not the same, but close.
    assert own == pytest.approx(built_in, rel=0.2) and own != built_in


def test_messages_of_own_algorithms_are_counted_as_extensions_with_bytes() -> None:
    messages = posse.run(experiment(repetitions=1)).messages
    own = messages["algorithm"] == "python-async-lin-ucb"
    assert set(messages["kind"][own]) == {"extension"}
    assert messages["bytes"][own].sum() > 0 and messages["scalars"][own].sum() > 0


def test_own_algorithms_keep_the_promises_of_the_conformance_suite() -> None:
    posse.testing.check(Copy, upload_threshold=1.2, download_threshold=1.5)
    posse.testing.check(Greedy)


def test_broken_promises_are_found() -> None:
    class Forgetful(Greedy):
        """Forgets its moments when it is restored."""

        def restore(self, state: bytes) -> None:
            super().restore(state)
            self.moment = np.zeros_like(self.moment)

    class Lossy(Copy):  # type: ignore[misc, valid-type]
        """Says that nothing is on its way."""

        name = "lossy"

        def inspect(self) -> dict[str, Any]:
            return {**super().inspect(), "in_flight": None, "unsent": 0}

    class Random(Greedy):
        """Draws from the machine's own source."""

        def choose(self, arms: Floats, user: int) -> int:
            return int(np.random.default_rng().integers(len(arms)))

    for broken, promise in ((Forgetful, "saved and restored"), (Lossy, "counted once"), (Random, "same calls")):
        with pytest.raises(posse.testing.Violation, match=promise):
            posse.testing.check(broken)


def test_settings_of_own_algorithms_are_those_of_their_constructor() -> None:
    result = posse.run({"horizon": 50, "agents": 2, "algorithm": [{"name": Greedy, "explore": [0, 0.5]}]})
    assert result.summary["algorithm.explore"].tolist() == [0.0, 0.5]
    assert result.summary["algorithm"].tolist() == ["greedy", "greedy"]
    with pytest.raises(posse.ConfigError, match="unknown key `explroe` for greedy(.|\n)*did you mean `explore`"):
        posse.run({"horizon": 50, "agents": 2, "algorithm": [{"name": Greedy, "explroe": 0.1}]})
    with pytest.raises(posse.ConfigError, match="expected a number"):
        posse.run({"horizon": 50, "agents": 2, "algorithm": [{"name": Greedy, "explore": "much"}]})


def test_classes_that_cannot_be_registered_are_refused() -> None:
    class NoDefault(Greedy):
        """Has a setting without a default."""

        def __init__(self, setup: posse.Setup, *, explore: float) -> None:
            super().__init__(setup, explore=explore)

    class Taken(Greedy):
        """Has the name of another."""

        name = "lin-ucb"

    for own, problem in ((NoDefault, "has no default"), (Taken, "posse's own"), (posse.Agent, "not finished"), (int, "neither")):
        with pytest.raises(posse.ConfigError, match=problem):
            posse.register(own)  # type: ignore[arg-type]


def test_an_exception_in_own_code_fails_its_cells_and_leaves_the_others() -> None:
    class Breaks(Greedy):
        """Breaks at the hundredth observation."""

        def learn(self, arm: Floats, reward: float, user: int) -> None:
            if self.choices == 100:
                raise RuntimeError("enough of this")
            super().learn(arm, reward, user)

    result = posse.run({"horizon": 150, "agents": 1, "algorithm": [{"name": Breaks}, {"name": "lin-ucb"}]})
    assert result.summary["algorithm"].tolist() == ["lin-ucb"]
    (error,) = result.failures.values()
    assert "RuntimeError: enough of this" in error and "test_own.py" in error


def test_a_federation_of_own_agents_is_driven_step_by_step() -> None:
    federation = posse.Federation(Copy, dimension=2, agents=2, upload_threshold=1.5)
    built_in = posse.Federation("async-lin-ucb", dimension=2, agents=2, upload_threshold=1.5)
    generator = np.random.default_rng(2)
    for step in range(60):
        arms, chosen = generator.normal(size=(3, 2)), list[int]()
        for made in (federation, built_in):
            agent = made.agent(step % 2)
            chosen.append(agent.choose(arms))
            agent.learn(arms[chosen[-1]], [0.2, 0.7, 0.4][chosen[-1]])
            made.exchange()
        assert chosen[0] == chosen[1]
    assert federation.coordinator.observations == built_in.coordinator.observations > 0
    with pytest.raises(posse.InputError, match="expected 2 features"):
        federation.agent(0).choose(np.ones((2, 3)))

    class Raises(Greedy):
        """Cannot choose."""

        def choose(self, arms: Floats, user: int) -> int:
            raise KeyError("nothing here")

    with pytest.raises(KeyError, match="nothing here"):
        posse.Federation(Raises, dimension=2).agent(0).choose(np.eye(2))


class Wave(posse.World):
    """Rewards are 0 or 1, and one arm is best for even steps, another for odd ones."""

    def __init__(self, agents: int, seed: int, *, arms: int = 4, contrast: float = 0.8) -> None:
        super().__init__(agents, seed)
        self.arms, self.contrast = arms, contrast
        self.dimension = 2 * arms

    def offer(self, step: int, agent: int) -> posse.Offer:
        features = np.zeros((self.arms, self.dimension))
        features[np.arange(self.arms), 2 * np.arange(self.arms) + step % 2] = 1.0
        means = np.full(self.arms, 0.1)
        means[step % 2] = self.contrast
        return posse.Offer(features, means, coin=self.generator(step).uniform())


def test_own_worlds_run_with_built_in_and_own_algorithms() -> None:
    settings = {
        "horizon": 400,
        "agents": 3,
        "repetitions": 2,
        "environment": {"kind": Wave, "contrast": [0.4, 0.9]},
        "algorithm": [{"name": "lin-ucb"}, {"name": Greedy}],
    }
    one, two = posse.run(settings), posse.run(settings, jobs=1)
    assert one.curves.to_arrow().equals(two.curves.to_arrow())
    assert not one.failures and one.summary.rows == 8
    assert set(one.summary["environment.kind"]) == {"wave"}
    assert set(one.summary["environment.contrast"]) == {0.4, 0.9}
    # Rewards are 0 or 1, and the best arm pays: regret stays below that of choosing at random.
    assert all(reward == int(reward) for reward in one.summary["reward"])
    assert (one.summary["regret"] < 0.75 * 0.75 * one.summary["environment.contrast"] * 400).all()


def test_own_worlds_survive_faulty_links_and_are_kept_in_directories(tmp_path: Path) -> None:
    settings = {
        "horizon": 200,
        "agents": 3,
        "network": {"preset": "hostile"},
        "environment": {"kind": Wave},
        "algorithm": [{"name": "async-lin-ucb"}],
    }
    kept = posse.run(settings, out=tmp_path / "out")
    assert posse.load(tmp_path / "out").curves.to_arrow().equals(kept.curves.to_arrow())


def test_wrong_offers_are_told_with_their_step() -> None:
    class Wrong(Wave):
        """Offers a feature too many."""

        def offer(self, step: int, agent: int) -> posse.Offer:
            good = super().offer(step, agent)
            return good if step < 7 else good._replace(arms=np.ones((self.arms, 3)))

    result = posse.run({"horizon": 20, "agents": 1, "environment": {"kind": Wrong}, "algorithm": [{"name": "lin-ucb"}]})
    (error,) = result.failures.values()
    assert "offer 7 has 4 arms of 3 features" in error


def test_a_simulated_world_is_asked_in_any_order() -> None:
    for kind in ("linear", Wave):
        world = posse.SimulatedWorld(kind, agents=2, seed=3)
        forward = [world.offer(step, step % 2) for step in range(20)]
        for step in reversed(range(20)):
            again = world.offer(step, step % 2)
            assert again[3] == forward[step][3]
            assert all(np.array_equal(one, other) for one, other in zip(again[:3], forward[step][:3], strict=True))
    with pytest.raises(posse.ConfigError, match="unknown key `dimensoin`"):
        posse.SimulatedWorld("linear", dimensoin=3)
    with pytest.raises(posse.InputError, match="there is no agent 2"):
        world.offer(0, 2)


@pytest.mark.parametrize(
    "value",
    [None, True, -3, 2**62, 0.1, float("inf"), "ä", b"\x00\xff", [1, (2, "x")], {"a": {1: None}}, {}],
)
def test_packed_values_come_back(value: Any) -> None:
    assert posse.unpack(posse.pack(value)) == value
    assert type(posse.unpack(posse.pack(value))) is type(value)


def test_packed_arrays_come_back_and_broken_bytes_do_not() -> None:
    bytes_, reversed_ = np.array([1, 2], dtype=np.uint8), np.eye(3)[::-1]
    for array in (np.arange(6.0).reshape(2, 3), np.zeros((0, 4)), np.array(2.5), bytes_, reversed_):
        again = posse.unpack(posse.pack(array))
        assert again.dtype == array.dtype and np.array_equal(again, array)
        again[...] = 0
    whole = posse.pack({"a": [1.5, "text", np.arange(3)], "b": b"bytes"})
    for end in range(len(whole)):
        with pytest.raises(posse.DecodeError):
            posse.unpack(whole[:end])
    with pytest.raises(posse.DecodeError):
        posse.unpack(whole + b"N")
    endless: list[Any] = []
    endless.append(endless)
    for wrong in (object(), {1, 2}, np.array(["x"]), 2**70, endless):
        with pytest.raises(TypeError):
            posse.pack(wrong)
    with pytest.raises(posse.DecodeError, match="nested too deep"):
        posse.unpack(posse.pack(None)[:-1] + (b"l" + (1).to_bytes(8, "little")) * 5000 + b"N")
