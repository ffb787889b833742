"""Experiments from Python are those of the command."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import posse
from posse import _experiments

SMALL: dict[str, Any] = {
    "title": "small",
    "horizon": 400,
    "agents": 4,
    "repetitions": 2,
    "environment": {"kind": "linear", "dimension": 3, "arms": 4},
    "algorithm": [
        {"name": "async-lin-ucb", "threshold": [1.5, 5.0]},
        {"name": "lin-ucb"},
    ],
    "check": [],
}
TEXT = """
title = "small"
horizon = 400
agents = 4
repetitions = 2
[environment]
kind = "linear"
dimension = 3
arms = 4
[[algorithm]]
name = "async-lin-ucb"
threshold = [1.5, 5.0]
[[algorithm]]
name = "lin-ucb"
"""
TABLES = ("summary", "curves", "agents", "messages")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(TEXT)
    return path


def without_seconds(table: Any) -> Any:
    return table.drop_columns([name for name in table.column_names if name == "seconds"])


def test_the_same_experiment_gives_the_same_parquet_as_the_command(
    file: Path, tmp_path: Path, command: Path
) -> None:
    subprocess.run([command, "run", file, "--out", tmp_path / "out", "--quiet"], check=True, capture_output=True)
    result = posse.run(file, jobs=2)
    for name in TABLES:
        expected = without_seconds(pyarrow.parquet.read_table(tmp_path / "out" / f"{name}.parquet"))
        got = without_seconds(getattr(result, name).to_arrow())
        assert got.schema.equals(expected.schema), name
        assert got.equals(expected), name
    assert result.summary.rows == 6 and result.experiment == "small"
    # Results of the command can be read, and are the same again.
    assert posse.load(tmp_path / "out").curves.to_arrow().equals(result.curves.to_arrow())
    # And the command goes on where Python was, and the other way round.
    posse.run(file, out=tmp_path / "mine")
    again = subprocess.run([command, "run", file, "--out", tmp_path / "mine"], check=True, capture_output=True)
    assert b"6 of 6 cells are there already" in again.stderr
    parquet = pyarrow.parquet.read_table(tmp_path / "mine" / "curves.parquet")
    assert parquet.equals(result.curves.to_arrow())


def test_a_dictionary_is_the_same_as_its_file(file: Path) -> None:
    settings = {key: value for key, value in SMALL.items() if key != "check"}
    one, other = posse.run(settings).curves, posse.run(file).curves
    assert one.to_arrow().equals(other.to_arrow())


def test_seeds_can_be_chosen(file: Path) -> None:
    result = posse.run(file, seeds=range(5, 8))
    assert sorted(set(result.summary["seed"])) == [5, 6, 7]
    assert sorted(set(posse.run(file, seeds=1).summary["seed"])) == [0]
    for seeds in (0, range(3, 3), range(0, 9, 2)):
        with pytest.raises(posse.ConfigError, match="`seeds` is"):
            posse.run(file, seeds=seeds)


def test_a_figure_is_reproduced_quickly() -> None:
    assert any(figure.id == "async-fig2a" and figure.status == "available" for figure in posse.figures())
    result = posse.reproduce("async-fig2a", quick=True, seeds=1)
    assert bool(result.summary["quick"].all()) and not result.failures
    assert "QUICK" in str(result) and result.checks
    with pytest.raises(posse.ConfigError, match="posse.figures"):
        posse.reproduce("async-fig2z")


def test_tables_are_numpy_arrow_pandas_and_polars(file: Path) -> None:
    result = posse.run(file)
    table = result.summary
    assert list(table) == table.columns and len(table) == len(table.columns)
    arrow, pandas, polars = table.to_arrow(), table.to_pandas(), table.to_polars()
    assert arrow.num_rows == len(pandas) == polars.height == table.rows == 6
    assert table["algorithm"].tolist() == arrow["algorithm"].to_pylist() == polars["algorithm"].to_list()
    assert table["regret"].tolist() == pandas["regret"].tolist() == polars["regret"].to_list()
    # Settings that a row does not have are missing, in every form.
    thresholds = table["algorithm.upload_threshold"]
    in_arrow = arrow["algorithm.upload_threshold"].to_pylist()
    assert np.isnan(thresholds).tolist() == [value is None for value in in_arrow]
    assert np.isnan(thresholds).sum() == 2
    assert table["quick"].tolist() == [False] * 6
    with pytest.raises(KeyError):
        table["nothing"]
    # Any library that speaks Arrow's C interface takes a table as it is.
    assert pyarrow.table(table).equals(arrow)


def test_arrow_columns_are_over_the_memory_that_rust_filled(file: Path) -> None:
    table = posse.run(file, seeds=1).curves
    index = table.columns.index("regret")
    column = table.to_arrow().column(index).chunk(0)
    assert column.buffers()[1].size == 8 * table.rows
    column.validate(full=True)


def test_a_result_shows_itself(file: Path) -> None:
    result = posse.run(file)
    assert "async-lin-ucb" in str(result)
    assert repr(result) == "<posse.Result of small: 6 of 6 cells>"
    assert result.to_html().startswith("<!doctype html>") and "<svg" in result.to_html()
    assert "srcdoc=" in result._repr_html_()


def test_a_bar_shows_how_far_a_run_has_come(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    posse.run(file, progress=True)
    assert "6/6 cells" in capsys.readouterr().err
    posse.run(file)
    assert capsys.readouterr().err == ""


def test_metrics_are_plotted_over_time(file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    assert posse.run(file).plot("messages", ax=ax) is ax
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "async-lin-ucb/threshold=1.5",
        "async-lin-ucb/threshold=5",
        "lin-ucb",
    ]
    with pytest.raises(posse.ConfigError, match="there is no metric regrets"):
        posse.run(file).plot("regrets")
    plt.close("all")


def test_shards_are_merged_into_the_whole(file: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        part = _experiments._plan(file, None, False)
        assert part.cells() == 6
        part.start(str(tmp_path / f"part{number}"), False, 1, f"{number}/2")
        while not part.wait(1.0):
            pass
    merged = posse.merge(tmp_path / "whole", tmp_path / "part1", tmp_path / "part2")
    assert merged.curves.to_arrow().equals(posse.run(file).curves.to_arrow())
    with pytest.raises(posse.ExperimentError, match="do not make a whole"):
        posse.merge(tmp_path / "half", tmp_path / "part1")


def test_mistakes_are_shown_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(TEXT.replace("threshold", "treshold"))
    with pytest.raises(posse.ConfigError, match=r"unknown key `treshold`(.|\n)*wrong.toml:12:1") as raised:
        posse.run(path)
    assert "did you mean `threshold`?" in str(raised.value)
    with pytest.raises(posse.ConfigError, match="cannot read"):
        posse.run(tmp_path / "nowhere.toml")
    with pytest.raises(posse.ConfigError, match="there is no \\[\\[algorithm\\]\\]"):
        posse.run({"horizon": 1, "agents": 1})
    with pytest.raises(posse.ConfigError, match="`jobs` is 0"):
        posse.run(SMALL, jobs=0)
    for seeds in (1 << 64, range(1 << 64, 1 + (1 << 64))):
        with pytest.raises(posse.ConfigError, match="`seeds` is 18446744073709551616: it must be below 2⁶⁴"):
            posse.run(SMALL, seeds=seeds)
    with pytest.raises(posse.ConfigError, match="there are no parts to merge"):
        posse.merge(tmp_path / "whole")


def test_other_results_are_not_overwritten(file: Path, tmp_path: Path) -> None:
    posse.run(file, out=tmp_path / "out")
    with pytest.raises(posse.ExperimentError, match="holds other results"):
        posse.run(file, out=tmp_path / "out", seeds=1)
    assert posse.run(file, out=tmp_path / "out", seeds=1, force=True).summary.rows == 3
    with pytest.raises(posse.ExperimentError, match="holds no results"):
        posse.load(tmp_path)


def test_ctrl_c_stops_a_run_that_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = tmp_path / "long.toml", tmp_path / "out"
    # The short cells end at once; the others would take hours.
    path.write_text(TEXT.replace("horizon = 400", "horizon = [100, 2_000_000_000]").replace("[1.5, 5.0]", "5.0"))
    seen: list[tuple[int, int, float]] = []

    def press(_bar: object, running: Any) -> None:
        if running.progress()[0] == 4 and not seen:
            seen.append(running.progress())
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(_experiments, "_show", press)
    # Shells start programs in the background with this signal ignored, and Python then leaves it so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            posse.run(path, out=out, jobs=8)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen[0][:2] == (4, 8) and 0 <= seen[0][2] < 1
    # What had finished is kept, and the run can go on: the directory is not locked any more.
    assert len(list(out.glob("cells/*.json"))) == 4
    monkeypatch.setattr(_experiments, "_show", lambda _bar, running: running.stop())
    assert repr(posse.run(path, out=out)) == "<posse.Result of long: 4 of 8 cells>"
