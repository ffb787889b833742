"""Agents and coordinators, step by step."""

from __future__ import annotations

import doctest
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import posse
from posse import _posse

ARMS = np.array([[1.0, 0.0, 0.5], [0.25, 0.75, 0.0], [0.0, 0.5, 1.0]])


def made(name: str = "async-lin-ucb", **settings: Any) -> posse.Federation:
    return posse.Federation(name, dimension=3, agents=2, seed=3, **settings)


def play(federation: posse.Federation, steps: int, first: int = 0) -> list[int]:
    choices = []
    for step in range(first, first + steps):
        agent = federation.agent(step % 2)
        arm = agent.choose(ARMS)
        agent.learn(ARMS[arm], [0.1, 0.9, 0.3][arm])
        federation.exchange()
        choices.append(arm)
    return choices


def test_agents_learn_and_share() -> None:
    federation = made()
    choices = play(federation, 100)
    assert choices[-20:] == [1] * 20
    unsent = sum(federation.agent(i).inspect()["unsent"] for i in range(2))
    assert federation.coordinator.observations + unsent == 100
    assert federation.coordinator.agents == 2 and federation.coordinator.version > 0


@pytest.mark.parametrize(
    "arms",
    [
        ARMS.tolist(),
        np.asfortranarray(ARMS),
        np.repeat(ARMS, 2, axis=1)[:, ::2],
        ARMS[::-1][::-1],
        ARMS.astype(np.float32),
        np.ascontiguousarray(ARMS).view(),
        ARMS.astype(">f8"),
        np.frombuffer(b"\0" + ARMS.tobytes(), dtype=np.uint8)[1:].view(np.float64).reshape(ARMS.shape),
    ],
    ids=["list", "fortran", "strided", "reversed", "float32", "view", "big-endian", "unaligned"],
)
def test_the_layout_and_type_of_an_array_do_not_matter(arms: object) -> None:
    expected, got = made().agent(0), made().agent(0)
    for reward in (0.5, 0.25, 0.125):
        assert got.choose(arms) == expected.choose(ARMS)  # type: ignore[arg-type]
        row = np.asarray(arms)[1]
        got.learn(row, reward)
        expected.learn(ARMS[1], reward)
    assert got.save() == expected.save()


def test_integers_and_strided_features_are_taken() -> None:
    one, other = made().agent(0), made().agent(0)
    one.learn([1, 0, 1], 1)
    other.learn(np.array([[1.0, 9.0], [0.0, 9.0], [1.0, 9.0]])[:, 0], 1.0)
    assert one.save() == other.save()


@pytest.mark.parametrize(
    ("arms", "text"),
    [
        (np.zeros((2, 4)), "expected 3 features, got 4"),
        (np.zeros((0, 3)), "there are no arms to choose from"),
        (np.zeros(3), "got an array of 1 dimensions"),
        (np.array([[1.0, np.nan, 0.0]]), "feature 1 is NaN"),
        (np.zeros((1, 3), dtype=complex), "expected real numbers"),
        ([["a", "b", "c"]], "expected real numbers"),
        ([[1.0, 2.0, 3.0], [1.0]], "inhomogeneous shape"),
    ],
)
def test_the_callers_mistakes_are_input_errors_and_change_nothing(arms: object, text: str) -> None:
    agent = made().agent(0)
    before = agent.save()
    with pytest.raises(posse.InputError, match=text):
        agent.choose(arms)  # type: ignore[arg-type]
    assert agent.save() == before
    assert issubclass(posse.InputError, ValueError)


def test_wrong_rewards_and_agents_are_input_errors() -> None:
    federation = made()
    with pytest.raises(posse.InputError, match="the reward is inf: rewards must be finite"):
        federation.agent(0).learn(ARMS[0], float("inf"))
    with pytest.raises(posse.InputError, match="there is no agent 2: this federation has 2 agents"):
        federation.agent(2)
    for wrong in (-1, 1 << 64):
        with pytest.raises(posse.InputError, match=f"there is no number {wrong}: agents and users are counted from 0"):
            federation.agent(wrong)
        with pytest.raises(posse.InputError, match=f"there is no number {wrong}"):
            federation.agent(0).choose(ARMS, user=wrong)
        with pytest.raises(posse.InputError, match=f"there is no number {wrong}"):
            federation.coordinator.join(wrong)
    with pytest.raises(posse.InputError, match="rewards are 4 × 3: expected 4 × 2"):
        federation.replay(np.zeros((4, 2, 3)), np.zeros((4, 3)))
    with pytest.raises(posse.InputError, match="names 1 agents: expected one for each of 4 offers"):
        federation.replay(np.zeros((4, 2, 3)), np.zeros((4, 2)), agents=[0])


def test_a_replay_that_stops_says_where_and_keeps_what_was_before() -> None:
    offers, rewards = np.tile(ARMS, (10, 1, 1)), np.tile([0.1, 0.9, 0.3], (10, 1))
    offers[5, 1, 2] = np.nan
    agent, expected = made("lin-ucb").agent(0), made("lin-ucb").agent(0)
    expected.replay(offers[:5], rewards[:5])
    with pytest.raises(posse.InputError, match="interaction 5: feature 2 is NaN"):
        agent.replay(offers, rewards)
    assert agent.save() == expected.save()
    with pytest.raises(posse.InputError, match="interaction 5: feature 2 is NaN"):
        made().replay(offers, rewards)
    with pytest.raises(posse.InputError, match="interaction 0: the reward is NaN"):
        made().replay(offers[:5], np.full((5, 3), np.nan))


def test_the_agents_of_a_replay_are_anything_that_is_a_list_of_numbers() -> None:
    offers, rewards = np.tile(ARMS, (4, 1, 1)), np.tile([0.1, 0.9, 0.3], (4, 1))
    states = []
    for agents in ([0, 1, 1, 1], np.array([0, 1, 1, 1]), np.array([0, 1, 1, 1], dtype=np.uint8), (0, 1, 1, 1)):
        federation = made("lin-ucb")
        federation.replay(offers, rewards, agents=agents)
        states.append(federation.agent(1).save())
    assert federation.agent(1).inspect()["unsent"] == 3 and len(set(states)) == 1
    for wrong, text in (
        ([0, 1, -1, 0], "there is no agent -1: agents are counted from 0"),
        ([0, 1, 2, 0], "there is no agent 2: this federation has 2 agents"),
        ([0, 1, 0.5, 0], "of type float64: expected whole numbers"),
        ("0101", "`agents` has 0 dimensions"),
        ([[0, 1, 0, 1]], "`agents` has 2 dimensions"),
    ):
        with pytest.raises(posse.InputError, match=text):
            made().replay(offers, rewards, agents=wrong)
    assert made().replay(offers[:0], rewards[:0], agents=[]).tolist() == []


@pytest.mark.parametrize("name", ["dimension", "agents", "seed", "horizon", "local"])
def test_sizes_that_no_machine_has_are_config_errors(name: str) -> None:
    for number, text in ((-1, "is -1: it must not be negative"), (1 << 64, "it must be below 2⁶⁴")):
        with pytest.raises(posse.ConfigError, match=f"`{name}` {text}" if number < 0 else text):
            posse.Federation("lin-ucb", **{"dimension": 3, name: number})
    with pytest.raises(TypeError, match=name):
        posse.Federation("lin-ucb", **{"dimension": 3, name: 1.5})  # type: ignore[arg-type]


def test_models_and_federations_beyond_all_memory_are_refused() -> None:
    for dimension in (20_000, 10**9, 2**63):
        with pytest.raises(posse.ConfigError, match="at most 16384 features"):
            posse.Federation("lin-ucb", dimension=dimension)
    with pytest.raises(posse.ConfigError, match="at most 16384 features"):
        posse.Federation("async-lin-ucb-am", dimension=2**63, local=2**63)
    with pytest.raises(posse.ConfigError, match="`agents` is 1000000000000: it must be at most 10000000"):
        posse.Federation("sync-lin-ucb", dimension=3, agents=10**12)


def test_settings_that_contain_themselves_are_refused() -> None:
    class Nested:
        def tolist(self) -> Nested:
            return self

    endless: dict[str, Any] = {}
    endless["epsilon"] = endless
    for wrong in (endless, Nested()):
        with pytest.raises(posse.ConfigError, match="nested more than 32 levels deep"):
            made(privacy=wrong)


def test_settings_are_refused_in_the_words_of_the_command() -> None:
    with pytest.raises(posse.ConfigError, match="did you mean `upload_threshold`?"):
        made(uplaod_threshold=2.0)
    with pytest.raises(posse.ConfigError, match="`regularization` is -1: "):
        made(regularization=-1)
    with pytest.raises(posse.ConfigError, match='unknown algorithm "lin-ubc": did you mean `lin-ucb`'):
        made("lin-ubc")
    with pytest.raises(posse.ConfigError, match="`width` is of type object"):
        made(width=object())
    with pytest.raises(posse.ConfigError, match="an arm needs at least one feature"):
        posse.Federation("lin-ucb", dimension=0)
    with pytest.raises(posse.ConfigError, match="`agents` is 0"):
        posse.Federation("lin-ucb", dimension=1, agents=0)


def test_settings_may_be_numbers_of_numpy_none_and_tables() -> None:
    one = made(threshold=np.float64(2.0), min_upload=np.int64(2), privacy=None)
    other = made(upload_threshold=2.0, download_threshold=2.0, min_upload=2)
    assert play(one, 50) == play(other, 50)
    assert one.coordinator.save() == other.coordinator.save()
    private = made(privacy={"epsilon": 4.0})
    play(private, 10)


def test_a_peers_mistakes_are_protocol_errors_and_change_nothing() -> None:
    federation = made(threshold=1.0)
    agent, coordinator = federation.agent(0), federation.coordinator
    agent.learn(ARMS[0], 1.0)
    message = agent.take_uplink()
    assert message is not None
    with pytest.raises(posse.ProtocolError, match="agent 0 has not joined"):
        coordinator.receive(0, message)
    with pytest.raises(posse.DecodeError, match="posse.v1"):
        coordinator.receive(0, b"\xff nonsense")
    with pytest.raises(posse.DecodeError):
        agent.receive(b"\xff nonsense")
    coordinator.join(0)
    before = coordinator.save()
    [(to, receipt)] = coordinator.receive(0, message)
    assert to == 0 and coordinator.save() != before
    agent.receive(receipt)
    with pytest.raises(posse.ProtocolError, match="expected upload 2 of this agent, got 1"):
        coordinator.receive(0, message)
    with pytest.raises(posse.InputError, match="time never goes back"):
        coordinator.tick(now=1.0)
    with pytest.raises(posse.DecodeError):
        agent.restore(b"nonsense")


def test_saved_states_go_on_with_the_same_bits() -> None:
    federation, copy = made(), made()
    play(federation, 30)
    for i in range(2):
        copy.agent(i).restore(federation.agent(i).save())
    copy.coordinator.restore(federation.coordinator.save())
    choices = [federation.agent(i).choose(ARMS) for i in range(2)]
    assert [copy.agent(i).choose(ARMS) for i in range(2)] == choices
    estimate, other = federation.agent(0).estimate(), copy.agent(0).estimate()
    assert estimate is not None and other is not None and estimate.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", ["async-lin-ts", "sync-lin-ucb", "fclub-dc", "central-lin-ucb"])
def test_a_pickled_federation_goes_on_with_the_same_bits(name: str) -> None:
    federation = made(name)
    play(federation, 31)
    copy = pickle.loads(pickle.dumps(federation))
    assert play(copy, 40, 31) == play(federation, 40, 31)
    assert copy.coordinator.save() == federation.coordinator.save()
    assert copy.agent(1).save() == federation.agent(1).save()


def test_a_pickled_agent_keeps_its_state_and_its_messages() -> None:
    federation = made(threshold=1.0)
    agent = federation.agent(1)
    agent.learn(ARMS[0], 1.0)
    copy = pickle.loads(pickle.dumps(agent))
    assert (copy.id, copy.save(), copy.take_uplink()) == (1, agent.save(), agent.take_uplink())
    assert copy.take_uplink() is None


def test_propensities_are_those_of_the_algorithm() -> None:
    assert made().agent(0).choose_with_propensity(ARMS)[1] == 1.0
    assert made("lin-ts").agent(0).choose_with_propensity(ARMS)[1] is None


def test_a_replay_of_one_agent_is_a_loop_of_it() -> None:
    generator = np.random.default_rng(0)
    offers, rewards = generator.uniform(-1, 1, (500, 4, 3)), generator.uniform(0, 1, (500, 4))
    loop, batch = made().agent(0), made().agent(0)
    choices = []
    for offer, reward in zip(offers, rewards, strict=True):
        arm = loop.choose(offer)
        loop.learn(offer[arm], reward[arm])
        choices.append(arm)
    assert batch.replay(offers, rewards).tolist() == choices
    assert batch.save() == loop.save()
    strided = made().agent(0)
    assert strided.replay(np.asfortranarray(offers), np.asfortranarray(rewards)).tolist() == choices
    assert strided.save() == loop.save()


def test_an_index_names_an_arm_of_the_last_offer() -> None:
    generator = np.random.default_rng(2)
    by_index, by_features = made().agent(0), made().agent(0)
    for offer in generator.uniform(-1, 1, (300, 4, 3)):
        arm = by_index.choose(offer)
        assert by_features.choose(offer) == arm
        # Another arm than the chosen one may have been played, and numpy's integers are integers.
        played = arm if arm < 2 else np.int64(0)
        by_index.learn(played, 0.5)
        by_features.learn(offer[played], 0.5)
    assert by_index.save() == by_features.save()


def test_an_index_of_no_arm_is_refused_and_changes_nothing() -> None:
    agent = made().agent(0)
    with pytest.raises(posse.InputError, match="no arm 0 in the last offer, which had 0 arms; pass the features of the arm"):
        agent.learn(0, 1.0)
    agent.choose(ARMS)
    before = agent.save()
    for index in [len(ARMS), -1, 10**30]:
        with pytest.raises(posse.InputError, match=f"in the last offer, which had {len(ARMS)} arms"):
            agent.learn(index, 1.0)
    with pytest.raises(posse.InputError, match="index in the last offer, or a vector"):
        agent.learn(0.5, 1.0)
    assert agent.save() == before
    # An offer that is refused is no offer.
    with pytest.raises(posse.InputError):
        agent.choose([[1.0]])
    with pytest.raises(posse.InputError, match="had 0 arms"):
        agent.learn(0, 1.0)


def test_an_index_in_the_offer_of_somebody_else_is_refused() -> None:
    federation = made("central-lin-ucb")
    one, other = federation.agent(0), federation.agent(1)
    asked: list[Callable[[], object]] = [
        lambda: other.choose(ARMS),
        lambda: one.choose(ARMS, user=7),
        lambda: in_a_thread(lambda: one.choose(ARMS)),
    ]
    for ask in asked:
        one.choose(ARMS)
        ask()
        with pytest.raises(posse.InputError, match="another user, agent or thread; pass the features"):
            one.learn(0, 1.0)
    one.choose(ARMS, user=7)
    one.learn(0, 1.0, user=7)
    # A replay has many offers, and none of them waits for its reward.
    one.replay(ARMS[None], [[0.1, 0.9, 0.3]])
    with pytest.raises(posse.InputError, match="had 0 arms"):
        one.learn(0, 1.0)


def in_a_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_replay_can_say_whose_turn_it_is() -> None:
    offers, rewards = np.tile(ARMS, (20, 1, 1)), np.tile([0.1, 0.9, 0.3], (20, 1))
    federation = made("lin-ucb")
    federation.replay(offers, rewards, agents=[1] * 20)
    assert federation.agent(1).inspect()["unsent"] == 20
    assert federation.agent(0).inspect()["unsent"] == 0


def lets_others_run(agent: posse.FederationAgent, arms: npt.NDArray[np.float64], calls: int) -> bool:
    """Whether a thread that waits for the interpreter's lock gets it during one of some choices."""
    held, ran = threading.Lock(), []

    def wait() -> None:
        with held:
            ran.append(True)

    interval = sys.getswitchinterval()
    # From here on no thread loses the lock unless it gives it away, so that the other one runs until it waits.
    sys.setswitchinterval(1000)
    held.acquire()
    other = threading.Thread(target=wait)
    other.start()
    try:
        held.release()
        for _ in range(calls):
            agent.choose(arms)
            if ran:
                break
        return bool(ran)
    finally:
        sys.setswitchinterval(interval)
        other.join()


def test_long_calls_release_the_lock_and_brief_ones_keep_it() -> None:
    large = np.linspace(-1, 1, 200 * 100).reshape(200, 100)
    long = posse.Federation("lin-ucb", dimension=100).agent(0)
    assert lets_others_run(long, large, 2000)
    assert not lets_others_run(made("lin-ucb").agent(0), ARMS, 200_000)


def test_threads_share_an_agent() -> None:
    federation = made("lin-ucb")
    agent = federation.agent(0)

    def learn() -> None:
        for _ in range(200):
            agent.learn(ARMS[agent.choose(ARMS)], 0.5)

    threads = [threading.Thread(target=learn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        pickle.dumps(federation)
    for thread in threads:
        thread.join()
    assert agent.inspect()["unsent"] == 800


def test_the_examples_in_docstrings_hold() -> None:
    runner, finder, attempted = doctest.DocTestRunner(), doctest.DocTestFinder(), 0
    for name in posse.__all__:
        thing = getattr(posse, name)
        if isinstance(thing, type) or callable(thing):
            found = finder.find(thing, name, module=False, globs={})
            attempted += sum(runner.run(test).attempted for test in found)
    assert attempted >= 12 and runner.failures == 0


def test_everything_public_is_documented() -> None:
    for name in posse.__all__:
        thing = getattr(posse, name)
        assert thing.__doc__, name
        # Fields of tuples are documented where they are defined.
        fields = getattr(thing, "_fields", ())
        for member in vars(thing) if isinstance(thing, type) else ():
            if not member.startswith("_") and member not in fields and callable(getattr(thing, member)):
                assert getattr(thing, member).__doc__, f"{name}.{member}"
    assert posse.__version__ == _posse.VERSION
