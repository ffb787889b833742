"""Every algorithm gives the same choices, messages and states in Python as in Rust."""

from __future__ import annotations

import zlib
from collections import deque

import numpy as np
import numpy.typing as npt
import pytest

import posse

AGENTS, ARMS, DIMENSION, STEPS = 3, 5, 4, 10_000
START, INTERVAL = 1e9, 0.01
NAMES = [algorithm.name for algorithm in posse.algorithms()]

Floats = npt.NDArray[np.float64]


def mix(number: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (number + np.uint64(1)) * np.uint64(0x9E37_79B9_7F4A_7C15)
    z = (z ^ (z >> np.uint64(32))) * np.uint64(0xD6E8_FEB8_6659_FD93)
    return z ^ (z >> np.uint64(32))


def inputs() -> tuple[Floats, Floats]:
    """The offers and rewards of ``play.rs``."""
    numbers = np.arange(STEPS * ARMS * DIMENSION, dtype=np.uint64)
    offers = ((mix(numbers) % np.uint64(129)).astype(np.float64) - 64) / 128
    offers = offers.reshape(STEPS, ARMS, DIMENSION)
    draws = mix(~np.arange(STEPS * ARMS, dtype=np.uint64)) % np.uint64(65)
    noise = ((draws.astype(np.float64) - 32) / 64).reshape(STEPS, ARMS)
    rewards = (offers @ np.array([1.0, 0.5, 0.25, 0.125]) + noise > 0).astype(np.float64)
    return offers, rewards


OFFERS, REWARDS = inputs()


def federation(name: str) -> posse.Federation:
    return posse.Federation(name, dimension=DIMENSION, agents=AGENTS, seed=11, horizon=10_000)


def learners(made: posse.Federation) -> list[posse.FederationAgent]:
    """One learner for each agent, or one for all."""
    central = made.algorithm in ("central-lin-ucb", "one-ucb-glm")
    return [made.agent(i) for i in range(1 if central else AGENTS)]


def checksum(made: posse.Federation) -> str:
    states = b"".join(agent.save() for agent in learners(made)) + made.coordinator.save()
    return f"{zlib.crc32(states):08x}"


class Post:
    """Carries messages as bytes, as a program with its own transport would, and remembers a checksum of them."""

    def __init__(self, made: posse.Federation) -> None:
        self.agents = learners(made)
        self.coordinator = made.coordinator
        self.messages = 0
        self.now = START
        if len(self.agents) == AGENTS:
            for agent in self.agents:
                self.deliver(deque(self.coordinator.join(agent.id, now=self.now)))

    def collect(self, learner: posse.FederationAgent) -> None:
        down: deque[tuple[int, bytes]] = deque()
        self.take(learner, down)
        self.deliver(down)

    def take(self, learner: posse.FederationAgent, down: deque[tuple[int, bytes]]) -> None:
        while (message := learner.take_uplink()) is not None:
            self.messages = zlib.crc32(message, self.messages)
            down.extend(self.coordinator.receive(learner.id, message, now=self.now))

    def deliver(self, down: deque[tuple[int, bytes]]) -> None:
        # One queue, first in, first out: an answer to a message waits until those before it have arrived.
        queue: deque[tuple[int, bytes, bool]] = deque((to, message, False) for to, message in down)
        while queue:
            who, message, is_up = queue.popleft()
            self.messages = zlib.crc32(message, self.messages)
            if is_up:
                answers = self.coordinator.receive(who, message, now=self.now)
                queue.extend((to, answer, False) for to, answer in answers)
            else:
                self.agents[who].receive(message)
                while (answer := self.agents[who].take_uplink()) is not None:
                    queue.append((who, answer, True))


@pytest.mark.parametrize("name", NAMES)
def test_step_by_step_with_messages_as_bytes(name: str, reference: list[list[str]]) -> None:
    expected = next(line for line in reference if line[0] == name)
    made = federation(name)
    post = Post(made)
    choices = []
    for step in range(int(expected[1])):
        post.now = START + step * INTERVAL
        user = step % AGENTS
        learner = post.agents[user % len(post.agents)]
        if learner.prepare(OFFERS[step], user=user, now=post.now):
            post.collect(learner)
        arm = learner.choose(OFFERS[step], user=user)
        choices.append(arm)
        learner.learn(OFFERS[step, arm], REWARDS[step, arm], user=user)
        post.collect(learner)
    chosen = zlib.crc32(np.array(choices, dtype="<u8").tobytes())
    got = [name, expected[1], f"{chosen:08x}", f"{post.messages:08x}", checksum(made)]
    assert got == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_replay_in_one_call_is_the_same(name: str, reference: list[list[str]]) -> None:
    _, steps, choices, _, states = next(line for line in reference if line[0] == name)
    made = federation(name)
    learners(made)
    made.exchange()
    chosen = made.replay(OFFERS[: int(steps)], REWARDS[: int(steps)])
    assert f"{zlib.crc32(chosen.astype('<u8').tobytes()):08x}" == choices
    assert checksum(made) == states


def test_the_reference_knows_every_algorithm(reference: list[list[str]]) -> None:
    assert [line[0] for line in reference] == NAMES
    # Choices differ between algorithms, so the comparison can fail.
    assert len({line[2] for line in reference}) > len(NAMES) / 2
