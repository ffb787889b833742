"""Live agents choose, learn and share through a coordinator that runs as `posse serve`."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import posse

ARMS = np.array([[1.0, 0.0], [0.6, 0.8], [-0.5, 0.2]])
CONFIG = """
listen = "127.0.0.1:0"
data = "data"
authentication = "none"
[[federation]]
name = "shop"
dimension = 2
agents = 8
[federation.algorithm]
name = "async-lin-ucb"
threshold = 1.2
"""


@pytest.fixture
def coordinator(command: Path, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "federation.toml").write_text(CONFIG)
    arguments: list[str | Path] = [command, "serve", "--config", tmp_path / "federation.toml"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def play(agent: posse.LiveAgent, interactions: int = 40) -> None:
    for _ in range(interactions):
        chosen = agent.choose(ARMS)
        agent.reward(chosen.id, [0.2, 0.7, 0.4][chosen.arm])


def test_agents_share_what_they_learn_and_tell_their_health(coordinator: str, tmp_path: Path) -> None:
    with posse.connect(coordinator, agent=3, state=tmp_path / "three") as agent:
        assert (agent.id, agent.dimension) == (3, 2)
        play(agent)
        assert agent.settle()
        health = agent.health()
        assert health["connected"] and health["choices"] == health["rewards"] == 40
        assert health["uplinks"] > 0 and health["superseded"] is None and agent.privacy() is None
        chosen = agent.choose(ARMS, user=5, wait=0.5)
        assert chosen.propensity == 1.0
    # The state goes on waiting for the reward, in another life of the process.
    with posse.connect(coordinator, agent=3, state=tmp_path / "three") as again:
        again.reward(chosen.id, 0.7)
        with pytest.raises(posse.InputError, match="does not wait for a reward"):
            again.reward(chosen.id, 0.7)
        with pytest.raises(posse.InputError, match="named like"):
            again.reward("nonsense", 0.7)
        with pytest.raises(posse.InputError, match="expected 2 features"):
            again.choose(np.ones((2, 3)))
    with pytest.raises(posse.ConnectError, match="closed"):
        again.choose(ARMS)
    again.close()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(again)


def test_threads_share_a_live_agent(coordinator: str) -> None:
    with posse.connect(coordinator, agent=1) as agent:
        threads = [threading.Thread(target=play, args=(agent,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert agent.health()["rewards"] == 160


def test_a_live_agent_fits_into_an_event_loop(coordinator: str) -> None:
    async def main() -> int:
        async with await posse.connect_async(coordinator, agent=2) as agent:
            for wait in (0.0, 0.2):
                chosen = await agent.choose_async(ARMS, wait=wait)
                await agent.reward_async(chosen.id, 0.5)
            assert await agent.settle_async()
            return agent.health()["rewards"]

    assert asyncio.run(main()) == 2


# Newer Pythons warn of any fork of a process with threads, which is what this is about.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_connects_by_itself(coordinator: str) -> None:
    with posse.connect(coordinator, agent=4) as agent:
        play(agent, 5)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            told = b"nothing"
            try:
                try:
                    agent.choose(ARMS)
                except posse.ConnectError as error:
                    told = str(error).encode()
                with posse.connect(coordinator, agent=5) as own:
                    play(own, 5)
                    told += b"|%d" % own.health()["rewards"]
            finally:
                os.write(write, told)
                os._exit(0)
        os.waitpid(child, 0)
        heard = os.read(read, 4096).decode()
        assert "before the process forked" in heard and heard.endswith("|5"), heard
        # The parent goes on.
        play(agent, 5)
        assert agent.settle() and agent.health()["rewards"] == 10


def test_a_coordinator_that_does_not_answer_or_refuses_is_told(coordinator: str) -> None:
    with pytest.raises(posse.ConnectError, match="did not answer within"):
        posse.connect("http://127.0.0.1:9", agent=1, timeout=0.3)
    with pytest.raises(posse.ConnectError, match="refused"):
        posse.connect(coordinator, agent=1, federation="another")
    with pytest.raises(posse.ConfigError, match="unencrypted"):
        posse.connect("http://example.com:7447", token="secret")
    with pytest.raises(posse.ConfigError, match="belong together"):
        posse.connect(coordinator, certificate="mine.pem")
    with pytest.raises(posse.ConnectError, match="privacy"):
        posse.connect(coordinator, agent=6, privacy={"max_epsilon": 1.0})
