"""Experiments on Ray give the results of one machine, also when a worker is killed in the middle."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import posse
import posse.ray


class Deadly(posse.World):
    """Kills the process that asks for step 150 with seed 2, once."""

    dimension = 3

    def __init__(self, agents: int, seed: int, *, flag: str = "") -> None:
        super().__init__(agents, seed)
        self.flag = flag

    def offer(self, step: int, agent: int) -> posse.Offer:
        if self.flag and step == 150 and self.seed == 2 and not os.path.exists(self.flag):
            with open(self.flag, "w", encoding="utf-8"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        generator = self.generator(step)
        arms = generator.normal(size=(5, 3))
        return posse.Offer(arms, arms @ [0.5, -0.2, 0.1], noise=0.1 * generator.normal())


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def experiment(flag: str) -> dict[str, Any]:
    return {
        "horizon": 300,
        "agents": 3,
        "repetitions": 4,
        "environment": {"kind": Deadly, "flag": flag},
        "algorithm": [{"name": "async-lin-ucb", "threshold": [1.5, 5.0]}, {"name": "lin-ucb"}],
    }


def test_a_killed_worker_changes_nothing(cluster: None, tmp_path: Path) -> None:
    flag = tmp_path / "killed"
    shared = posse.ray.run(experiment(str(flag)), out=tmp_path / "ray", shards=4)
    assert flag.exists(), "a worker was killed"
    alone = posse.run(experiment(str(flag)))
    for name in ("summary", "curves", "agents", "messages"):
        one, other = getattr(shared, name).to_arrow(), getattr(alone, name).to_arrow()
        timed = [column for column in one.column_names if column == "seconds"]
        assert one.drop_columns(timed).equals(other.drop_columns(timed)), name
    assert not (tmp_path / "ray.parts").exists()
    assert posse.load(tmp_path / "ray").curves.to_arrow().equals(alone.curves.to_arrow())


def test_finished_shards_are_kept_and_files_travel(cluster: None, tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text('horizon = 100\nagents = 2\nrepetitions = 3\n[[algorithm]]\nname = "lin-ucb"\n')
    whole = posse.ray.run(path, out=tmp_path / "one", shards=3)
    assert whole.experiment == "small" and whole.summary.rows == 3
    # A part that is there is not run again: it would have to be, if it were not kept.
    plan = posse._experiments._plan(path, None, False)
    plan.start(str(tmp_path / "two.parts" / "1-of-3"), False, 1, "1/3")
    while not plan.wait(1.0):
        pass
    before = (tmp_path / "two.parts" / "1-of-3").stat().st_ino
    assert before and posse.ray.run(path, out=tmp_path / "two", shards=3).summary.rows == 3
    with pytest.raises(posse.ConfigError, match="`shards` is 9: there are 3 cells"):
        posse.ray.run(path, out=tmp_path / "three", shards=9)
