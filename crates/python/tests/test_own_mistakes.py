"""Own algorithms and worlds with mistakes in them: the exception says what is wrong, and nothing hangs."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import posse


def broken(*_: Any) -> Any:
    raise KeyError("own code broke")


def class_with(**methods: Any) -> type[posse.Agent]:
    """A class of agents that upload every observation, with some methods of its own."""
    agents = {key: value for key, value in methods.items() if not key.startswith("coordinator_")}
    desk = {key.removeprefix("coordinator_"): value for key, value in methods.items() if key.startswith("coordinator_")}
    whole = {"receive": lambda *_: (), "inspect": lambda _: {}, **desk}
    own = {"choose": lambda *_: 0, "learn": lambda *_: b"news", "receive": lambda *_: None, **agents}
    return type("Own", (posse.Agent,), {**own, "coordinator": type("Desk", (posse.Coordinator,), whole)})


@pytest.mark.parametrize("method", ["__init__", "inspect", "save", "restore"])
def test_exceptions_of_own_agents_reach_the_program_that_drives_them(method: str) -> None:
    good = posse.Federation(class_with(), dimension=2).agent(0).save()
    with pytest.raises(KeyError, match="own code broke"):
        agent = posse.Federation(class_with(**{method: broken}), dimension=2).agent(0)
        agent.inspect()
        agent.estimate()
        pickle.loads(pickle.dumps(agent))
        agent.restore(good)


@pytest.mark.parametrize("method", ["join", "leave", "receive", "tick", "deadline", "inspect", "save", "restore"])
def test_exceptions_of_own_coordinators_reach_the_program_that_drives_them(method: str) -> None:
    federation = posse.Federation(class_with(**{f"coordinator_{method}": broken}), dimension=2)
    desk, good = federation.coordinator, posse.Federation(class_with(), dimension=2).coordinator.save()
    federation.agent(0).learn([1.0, 0.0], 1.0)
    calls: dict[str, Any] = {
        "join": lambda: desk.join(0),
        "leave": lambda: desk.leave(0),
        "receive": lambda: federation.exchange(),
        "tick": lambda: desk.tick(),
        "deadline": lambda: desk.deadline,
        "inspect": lambda: desk.observations,
        "save": lambda: pickle.dumps(federation),
        "restore": lambda: desk.restore(good),
    }
    with pytest.raises(KeyError, match="own code broke"):
        calls[method]()
    others: dict[str, Any] = {"inspect": lambda: repr(desk), "save": lambda: desk.save()}
    if method in others:
        with pytest.raises(KeyError, match="own code broke"):
            others[method]()


@pytest.mark.parametrize(
    ("method", "returned", "error", "text"),
    [
        ("choose", None, TypeError, "choose returned None: expected the index of an arm"),
        ("choose", 99, ValueError, "choose returned arm 99: there are 3, from 0 on"),
        ("choose", -1, ValueError, "choose returned arm -1: there are 3, from 0 on"),
        ("choose", (0, 1.5), ValueError, "the probability 1.5: it is between 0 and 1"),
        ("choose", (0, float("nan")), ValueError, "the probability NaN: it is between 0 and 1"),
        ("learn", "text", TypeError, "learn returned 'text': expected bytes, a posse.Message of bytes, or None"),
        ("learn", np.ones(1), TypeError, r"learn returned array\(\[1.\]\): expected bytes"),
        ("learn", posse.Message(b"x", -1), TypeError, "learn returned Message"),
        ("inspect", [1], TypeError, r"inspect returned \[1\]: expected a dict or None"),
        ("inspect", {"unsent": -1}, TypeError, "inspect says that unsent is -1: expected a number from 0 on"),
        ("save", None, TypeError, "save returned None: expected bytes"),
        ("coordinator_receive", b"x", TypeError, "receive returned 120: expected pairs of an agent's number"),
        ("coordinator_receive", 3, TypeError, "receive returned 3: expected pairs"),
        ("coordinator_receive", [(7, b"x")], ValueError, "receive writes to agent 7, which has not joined"),
        ("coordinator_receive", [(0, "x")], TypeError, "receive returned 'x': expected bytes"),
        ("coordinator_inspect", None, TypeError, "inspect returned None: expected a dict"),
        ("coordinator_deadline", "soon", TypeError, "deadline returned 'soon': expected a time"),
        ("coordinator_save", "x", TypeError, "save returned 'x': expected bytes"),
    ],
)
def test_own_code_that_returns_the_wrong_thing_is_told_so(
    method: str, returned: object, error: type[Exception], text: str
) -> None:
    federation = posse.Federation(class_with(**{method: lambda *_: returned}), dimension=2)
    agent = federation.agent(0)
    with pytest.raises(error, match=text) as raised:
        agent.choose(np.eye(2)[[0, 1, 0]])
        agent.learn([1.0, 0.0], 1.0)
        federation.exchange()
        _ = (agent.inspect(), agent.save())
        desk = federation.coordinator
        _ = (desk.observations, desk.deadline, desk.save())
    # The author of the class is at fault, and not the caller.
    assert not isinstance(raised.value, posse.Error)


def test_own_code_that_calls_its_own_federation_is_refused_and_does_not_wait_for_ever() -> None:
    hold: list[posse.Federation] = []
    arms = np.eye(2)
    calls: dict[str, Any] = {
        "choose": lambda *_: hold[0].agent(0).choose(arms),
        "learn": lambda *_: pickle.dumps(hold[0]),
        "coordinator_receive": lambda *_: hold[0].exchange(),
    }
    for method, call in calls.items():
        federation = posse.Federation(class_with(**{method: call}), dimension=2)
        hold[:] = [federation]
        with pytest.raises(RuntimeError, match="cannot call the federation that runs it"):
            federation.agent(0).choose(arms)
            federation.agent(0).learn(arms[0], 1.0)
            federation.exchange()
    # Another federation may be called.
    hold[:] = [posse.Federation("lin-ucb", dimension=2)]
    other = posse.Federation(class_with(choose=calls["choose"]), dimension=2)
    assert other.agent(0).choose(arms) in (0, 1)


def test_messages_that_answer_messages_come_to_an_end() -> None:
    endless = class_with(receive=lambda *_: b"more", coordinator_receive=lambda *_: [(None, b"more")])
    result = posse.run({"horizon": 10, "agents": 1, "algorithm": [{"name": endless}]})
    (error,) = result.failures.values()
    assert "messages answer messages without end" in error


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"offer": None}, "offer returned None: expected a posse.Offer"),
        ({"offer": posse.Offer(np.eye(2), [0.1, 0.2], coin=2.0)}, "the coin of offer 0 is 2: it is between 0 and 1"),
        ({"offer": posse.Offer(np.eye(2), [0.1, 0.2], noise=np.nan)}, "the noise of offer 0 is NaN"),
        ({"offer": posse.Offer(np.eye(2), [0.1, 0.2], user=-1)}, "the user of offer 0 is -1"),
        ({"turn": 7}, "turn returned agent 7: there are 2, from 0 on"),
        ({"turn": "x"}, "turn returned 'x': expected the number of an agent"),
    ],
)
def test_wrong_worlds_fail_their_cells_in_plain_words(wrong: dict[str, Any], text: str) -> None:
    good = {"offer": posse.Offer(np.eye(2), [0.1, 0.2]), "turn": None}
    methods = {name: lambda *_, told=told: told for name, told in (good | wrong).items()}
    world = type("Wrong", (posse.World,), {"dimension": 2, **methods})
    result = posse.run({"horizon": 20, "agents": 2, "environment": {"kind": world}, "algorithm": [{"name": "lin-ucb"}]})
    (error,) = result.failures.values()
    assert text in error
    with pytest.raises((TypeError, ValueError), match=text):
        posse.SimulatedWorld(world, agents=2).offer(0)


def test_worlds_without_a_dimension_are_refused() -> None:
    nothing = {"offer": lambda *_: posse.Offer(np.eye(2), [0.1, 0.2])}
    for told, text in (({}, "has no `dimension`"), ({"dimension": -1}, "is -1"), ({"dimension": 2, "length": "x"}, "is x")):
        with pytest.raises(posse.ConfigError, match=text):
            posse.SimulatedWorld(type("Wrong", (posse.World,), {**nothing, **told}))
    for number in ({"agents": -1}, {"seed": -1}):
        with pytest.raises(posse.ConfigError, match="must not be negative"):
            posse.SimulatedWorld("linear", **number)
    with pytest.raises(posse.InputError, match="there is no number -1"):
        posse.SimulatedWorld("linear").offer(-1)
