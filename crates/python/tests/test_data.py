"""Data is prepared, inspected and loaded, and policies are judged on logs, with the numbers of the command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

import posse
import posse.data

ACTIONS = ["blue", "green", "red"]


def log(rows: int = 1200) -> dict[str, Any]:
    """Decisions of a policy that prefers red, in which green pays most for the old."""
    generator = np.random.default_rng(5)
    age = generator.uniform(size=rows)
    propensities = np.array([0.2, 0.3, 0.5])
    taken = generator.choice(3, size=rows, p=propensities)
    means = np.column_stack([np.full(rows, 0.3), 0.2 + 0.6 * age, np.full(rows, 0.4)])
    rewards = (generator.uniform(size=rows) < means[np.arange(rows), taken]).astype(float)
    return {
        "action": np.array(ACTIONS)[taken].tolist(),
        "reward": rewards.tolist(),
        "propensity": propensities[taken].tolist(),
        "age": age.tolist(),
        "who": (np.arange(rows) % 7).tolist(),
    }


COLUMNS: dict[str, Any] = {"action": "action", "reward": "reward", "propensity": "propensity", "context": ["age"], "user": "who"}


def test_a_log_is_prepared_from_every_kind_of_frame_with_the_same_hash(tmp_path: Path) -> None:
    frames = {"pandas": pandas.DataFrame(log()), "polars": polars.DataFrame(log()), "arrow": pa.table(log())}
    made = {name: posse.data.prepare("log", frame, tmp_path / name, **COLUMNS) for name, frame in frames.items()}
    assert len({prepared.hash for prepared in made.values()}) == 1
    prepared = made["pandas"]
    assert prepared.kind == "log" and posse.data.inspect(prepared.directory)["manifest"]["hash"] == prepared.hash
    tables = posse.data.load(prepared.directory)
    assert tables["decisions"].num_rows == 1200 and tables["items"].column(0).to_pylist() == ACTIONS
    with pytest.raises(posse.ConfigError, match="is no world"):
        _ = prepared.environment
    with pytest.raises(posse.ExperimentError, match="force|already|there"):
        posse.data.prepare("log", frames["arrow"], tmp_path / "arrow", **COLUMNS)
    posse.data.prepare("log", frames["arrow"], tmp_path / "arrow", force=True, **COLUMNS)
    with pytest.raises(posse.ExperimentError, match="^the frame as CSV, line 1: there is no column `cost`; there are "):
        posse.data.prepare("log", frames["arrow"], tmp_path / "none", **{**COLUMNS, "reward": "cost"})


def test_a_table_becomes_a_world(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    features = generator.normal(size=(300, 2))
    frame = pandas.DataFrame({"a": features[:, 0], "b": features[:, 1], "label": np.where(features[:, 0] > 0, "yes", "no")})
    prepared = posse.data.prepare("table", frame, tmp_path / "table", label="label")
    result = posse.run(
        {"horizon": 300, "agents": 2, "environment": prepared.environment, "algorithm": [{"name": "lin-ucb"}]}
    )
    assert not result.failures and result.summary["regret"][0] < 100
    assert any(known.name == "shuttle" and "licence" in known.about for known in posse.data.published())


def test_an_evaluation_has_the_numbers_of_the_command(tmp_path: Path, command: Path) -> None:
    frame = pandas.DataFrame(log())
    prepared = posse.data.prepare("log", frame, tmp_path / "log", **COLUMNS)
    policy = {"name": "async-lin-ucb", "threshold": 2}
    options = ["--algorithm", "async-lin-ucb", "--set", "threshold=2", "--agents", "3", "--json"]
    printed = subprocess.run([command, "evaluate", prepared.directory, *options], check=True, capture_output=True).stdout
    one = posse.evaluate(prepared.directory, policy, agents=3)
    two = posse.evaluate(frame, policy, agents=3, propensity="propensity", context=["age"], user="who")
    assert one.document == two.document == json.loads(printed)
    assert one.estimates["snips"] is not None and len(one.to_pandas()) >= 3
    assert "snips" in str(one) and "logged" in repr(one)
    replayed = posse.evaluate(prepared.directory, "lin-ucb", replay=True)
    assert set(replayed.estimates) == {"replay"}


def test_own_policies_are_judged_by_their_probabilities(tmp_path: Path) -> None:
    rows = log()
    prepared = posse.data.prepare("log", pa.table(rows), tmp_path / "log", **COLUMNS)
    old = np.array(rows["age"]) > 0.5
    greenish = np.where(old[:, None], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    by_array = posse.evaluate(prepared.directory, greenish)
    by_frame = posse.evaluate(prepared.directory, polars.DataFrame(greenish[:, ::-1], schema=ACTIONS[::-1]))
    taken = greenish[np.arange(1200), [ACTIONS.index(action) for action in rows["action"]]]
    by_row = posse.evaluate(prepared.directory, taken)
    assert by_array.document["estimates"] == by_frame.document["estimates"]
    ips = [own.estimates["ips"] for own in (by_array, by_row)]
    assert ips[0] == ips[1] and ips[0] is not None and ips[0].value > by_array.logged
    with pytest.raises(posse.InputError, match="2 columns of probabilities: the log has 3"):
        posse.evaluate(prepared.directory, greenish[:, :2])
    for wrong in ([[0.5], [0.5, 0.5]], object()):
        with pytest.raises(posse.InputError, match="neither an algorithm nor a table of probabilities"):
            posse.evaluate(prepared.directory, wrong)


def test_frames_that_cannot_be_used_and_rewards_that_are_switches(tmp_path: Path) -> None:
    frame = pandas.DataFrame(log())
    switched = frame.assign(reward=frame["reward"] > 0.5)
    options: dict[str, Any] = {"propensity": "propensity", "context": ["age"], "user": "who"}
    assert posse.evaluate(switched, "lin-ucb", **options).document == posse.evaluate(frame, "lin-ucb", **options).document
    for wrong in (frame.assign(age=[1, "x"] * 600), frame.assign(age=[[1.0, 2.0]] * 1200), pandas.concat([frame, frame], axis=1)):
        with pytest.raises(posse.InputError, match="the frame cannot be written as text: "):
            posse.evaluate(wrong, "lin-ucb", **options)
    with pytest.raises(posse.ExperimentError, match="there is no row in it"):
        posse.evaluate(frame.iloc[:0], "lin-ucb", **options)
    one = posse.evaluate(frame.iloc[:1], "lin-ucb", **options)
    assert "snips" in str(one) and one.estimates["snips"] is not None and one.estimates["snips"].low is None
    with pytest.raises(posse.ExperimentError, match=r"^the policy as CSV, line 2, column 1 \(probability\): "):
        posse.evaluate(frame, np.full(1200, np.nan), **options)
    with pytest.raises(posse.InputError, match="no table of probabilities"):
        posse.evaluate(frame, pandas.DataFrame({action: ["x"] * 1200 for action in ACTIONS}), **options)


def test_actions_may_have_commas_and_quotes_in_their_names(tmp_path: Path) -> None:
    rows = log()
    names = {"blue": "blue, dark", "green": 'the "green"', "red": "red"}
    rows["action"] = [names[action] for action in rows["action"]]
    prepared = posse.data.prepare("log", pa.table(rows), tmp_path / "log", **COLUMNS)
    kept = posse.data.load(prepared.directory)["items"].column(0).to_pylist()
    assert sorted(kept) == sorted(names.values())
    even = posse.evaluate(prepared.directory, np.full((1200, 3), 1 / 3))
    assert even.estimates["ips"] is not None


def test_mistakes_in_data_are_told_where_they_are(tmp_path: Path) -> None:
    broken = {**log(10), "reward": [float("nan")] * 10}
    with pytest.raises(posse.ExperimentError, match="reward"):
        posse.data.prepare("log", pa.table(broken), tmp_path / "log", **COLUMNS)
    assert not (tmp_path / "log").exists()
    with pytest.raises(posse.ConfigError, match="speaks Arrow"):
        posse.data.prepare("log", [1, 2], tmp_path / "log", **COLUMNS)
    with pytest.raises(posse.ConfigError, match="`colour` is no option"):
        posse.evaluate(pa.table(log(10)), "lin-ucb", colour="action")
    with pytest.raises(posse.ExperimentError):
        posse.data.load(tmp_path)
