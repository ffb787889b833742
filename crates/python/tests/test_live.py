"""Live agents choose, learn and share through a coordinator that runs as `posse serve`."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def serving(command: Path, config: Path) -> Iterator[str]:
    """A running coordinator, and where it listens."""
    arguments: list[str | Path] = [command, "serve", "--config", config]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


@pytest.fixture
def coordinator(command: Path, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "federation.toml").write_text(CONFIG)
    with serving(command, tmp_path / "federation.toml") as url:
        yield url


def init(command: Path, home: Path, *options: str) -> None:
    """Everything that a federation with TLS, tokens and two agents needs, as an operator makes it."""
    ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    arguments: list[str | Path] = [command, "init", home, "--dimension", "2", "--agents", "2", *ports, *options]
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)


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


def test_ctrl_c_ends_a_wait(command: Path, tmp_path: Path) -> None:
    """The coordinator is gone, so that the agent would wait for an hour: the alarm rings as Ctrl-C does."""
    (tmp_path / "federation.toml").write_text(CONFIG)
    with serving(command, tmp_path / "federation.toml") as url:
        agent = posse.connect(url, agent=7)
    play(agent)

    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            agent.settle(3600.0)
    finally:
        signal.signal(signal.SIGALRM, before)
        agent.close()


def test_users_and_times_that_cannot_be_are_refused(coordinator: str) -> None:
    with posse.connect(coordinator, agent=7) as agent:
        with pytest.raises(posse.InputError, match="there is no number -1"):
            agent.choose(ARMS, user=-1)
        with pytest.raises(posse.ConfigError, match="`wait` is -1: expected a time in seconds"):
            agent.choose(ARMS, wait=-1.0)
        with pytest.raises(posse.ConfigError, match="`seconds` is NaN: expected a time in seconds"):
            agent.settle(float("nan"))
        with pytest.raises(posse.InputError):
            agent.reward("nonsense", 1.0)
    for call in (lambda: agent.choose(ARMS), lambda: agent.health(), lambda: agent.settle(), lambda: agent.reward("x", 1.0)):
        with pytest.raises(posse.ConnectError, match="the agent was closed"):
            call()
    agent.close()
    for setting in ("agent", "local_features"):
        with pytest.raises(posse.ConfigError, match=f"`{setting}` is -1: it must not be negative"):
            posse.connect(coordinator, **{"agent": 7, setting: -1})  # type: ignore[arg-type]
    with pytest.raises(posse.ConfigError, match="`exchange_every` must be above 0 seconds"):
        posse.connect(coordinator, agent=7, exchange_every=0.0)


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


def test_a_token_over_tls_says_which_agent_it_is(command: Path, tmp_path: Path) -> None:
    home = tmp_path / "shop"
    init(command, home)
    token = (home / "agents/2/token").read_text().strip()
    ca = home / "agents/2/ca.pem"
    with serving(command, home / "federation.toml") as url:
        assert url.startswith("https://127.0.0.1:"), url
        with posse.connect(url, token=token, ca=ca) as agent:
            assert agent.id == 2
            play(agent)
            assert agent.settle() and agent.health()["uplinks"] > 0
        with posse.connect(url, token_file=home / "agents/1/token", ca=str(ca), state=tmp_path / "one") as agent:
            assert agent.id == 1
            play(agent)
            assert agent.settle() and agent.health()["uplinks"] > 0
        with pytest.raises(posse.ConnectError, match="refused.*token"):
            posse.connect(url, token=token[:-1], ca=ca)
        with pytest.raises(posse.ConnectError, match="refused.*token is needed"):
            posse.connect(url, agent=2, ca=ca)
        # The system does not know the federation's own authority, and another authority does not vouch for it.
        init(command, tmp_path / "other")
        for stranger in (None, tmp_path / "other/ca.pem"):
            with pytest.raises(posse.ConnectError, match="did not answer within"):
                posse.connect(url, token=token, ca=stranger, timeout=0.5)
    with pytest.raises(posse.ConfigError, match="contradict"):
        posse.connect(url, token=token, token_file=home / "agents/2/token", ca=ca)
    with pytest.raises(posse.ConfigError, match="it must hold one in PEM form"):
        posse.connect(url, token=token, ca=home / "federation.toml")


def test_a_coordinator_that_asks_for_certificates_takes_those_of_the_agent(command: Path, tmp_path: Path) -> None:
    home = tmp_path / "shop"
    init(command, home, "--client-certificates")
    one, two = home / "agents/1", home / "agents/2"
    with serving(command, home / "federation.toml") as url:
        ca, certificate, key = one / "ca.pem", one / "certificate.pem", one / "certificate.key"
        with posse.connect(url, token_file=one / "token", ca=ca, certificate=certificate, key=key) as agent:
            assert agent.id == 1
            play(agent, 10)
            assert agent.settle()
        with pytest.raises(posse.ConnectError, match="refused"):
            posse.connect(url, token_file=two / "token", ca=ca, certificate=certificate, key=key)
