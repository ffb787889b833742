"""Experiments: run them, reproduce published ones, and look at what came of them."""

from __future__ import annotations

import contextlib
import html
import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import _posse
from ._errors import ConfigError, Error
from ._own import Agent, World, name_of
from ._tables import Table

#: Seconds between two looks at Ctrl-C and progress.
_PATIENCE = 0.05


class Setting(NamedTuple):
    """A setting of an algorithm."""

    name: str
    default: str
    meaning: str


class Algorithm(NamedTuple):
    """An algorithm that ``Federation`` and experiments know."""

    name: str
    summary: str
    settings: list[Setting]


class Figure(NamedTuple):
    """A published figure or table."""

    id: str
    paper: str
    shows: str
    status: str


def algorithms() -> list[Algorithm]:
    """Every algorithm with its settings, own ones that were registered not among them."""
    return [
        Algorithm(name, summary, [Setting(*setting) for setting in settings])
        for name, summary, settings in _posse.algorithms()
    ]


def figures() -> list[Figure]:
    """Every published figure, and whether ``reproduce`` can run it here."""
    return [Figure(*figure) for figure in _posse.figures()]


class Result:
    """What came of an experiment.

    The four tables are those that the command writes as Parquet. In a notebook a result shows itself as the report does.

    Attributes
    ----------
    summary : Table
        A row for each cell: every setting, every metric, the seed.
    curves : Table
        The metrics over time, at log-spaced moments.
    agents : Table
        How regret, messages and more are spread over agents.
    messages : Table
        What was sent of each kind of message, in each direction.
    failures : dict of str to str
        The cells that failed, with the reason.
    checks : dict of str to str
        What the experiment claims, and ``PASS``, ``FAIL``, ``DEVIATES`` or ``INCONCLUSIVE``.
    """

    summary: Table
    curves: Table
    agents: Table
    messages: Table

    def __init__(self, running: _posse.Running) -> None:
        self._running = running
        tables = {name: Table(raw) for name, raw in running.tables()}
        self.summary = tables["summary"]
        self.curves = tables["curves"]
        self.agents = tables["agents"]
        self.messages = tables["messages"]
        self.experiment = running.experiment
        self.failures = dict(running.failures())
        self.checks = dict(running.checks())

    def __str__(self) -> str:
        """The table and the checks as the command prints them."""
        return self._running.text()

    def __repr__(self) -> str:
        """The experiment and how many cells have run."""
        done, cells = self._running.finished()
        return f"<posse.Result of {self.experiment}: {done} of {cells} cells>"

    def to_html(self) -> str:
        """The report of the experiment as one HTML page that needs nothing else."""
        return self._running.html()

    def _repr_html_(self) -> str:
        # A page of its own, so that neither its style nor its script meets those of the notebook.
        page = html.escape(self.to_html(), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'

    def plot(self, metric: str = "regret", ax: Any = None) -> Any:
        """Draw a metric over time, its mean over seeds, with matplotlib.

        Parameters
        ----------
        metric : str, optional
            A column of ``curves``.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default the current axes.

        Returns
        -------
        matplotlib.axes.Axes
            The axes that were drawn on.
        """
        if metric not in self.curves:
            raise ConfigError(f"there is no metric {metric}: curves have {', '.join(self.curves.columns)}")
        if ax is None:
            import matplotlib.pyplot

            ax = matplotlib.pyplot.gca()
        if self.curves[metric].dtype == object:
            raise ConfigError(f"`{metric}` is no number: it cannot be drawn over time")
        everybody = self.curves["agents"] == "all"
        groups, steps, values = (self.curves[c][everybody] for c in ("group", "step", metric))
        for group in dict.fromkeys(groups):
            own = groups == group
            moments = sorted(set(steps[own]))
            ax.plot(moments, [values[own & (steps == moment)].mean() for moment in moments], label=group)
        ax.set_xlabel("interactions")
        ax.set_ylabel(metric)
        ax.legend()
        return ax


def run(
    experiment: str | os.PathLike[str] | Mapping[str, Any],
    *,
    seeds: int | range | None = None,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    quick: bool = False,
    progress: bool | None = None,
) -> Result:
    """Run an experiment in the simulator.

    Parameters
    ----------
    experiment : path or mapping
        A file in TOML, or its content as a dictionary: ``{"horizon": 1000, "agents": 5, "algorithm": [{"name": ...}]}``.
        A list where one value is expected is a sweep. The ``name`` of an algorithm may be a class of ``posse.Agent``, the
        ``kind`` of the environment a class of ``posse.World``.
    seeds : int or range, optional
        How many seeds each setting runs with, or which: they follow each other. By default what the experiment says.
    jobs : int, optional
        How many cells run at a time; by default as many as there are processors. Numbers do not depend on it.
    out : path, optional
        A directory to keep results in. A run that was interrupted goes on from there, also one of the command.
    force : bool, optional
        Replace other results in that directory.
    quick : bool, optional
        Scale down for a first look.
    progress : bool, optional
        Show a bar, with tqdm if it is installed. By default on a terminal and in notebooks.

    Returns
    -------
    Result
        What came of it.

    Raises
    ------
    ConfigError
        Something in the experiment is wrong; the text says what, where and what to do.
    ExperimentError
        The results cannot be kept.
    KeyboardInterrupt
        Ctrl-C was pressed. Cells that had finished are in ``out``.
    """
    return _finish(_plan(experiment, seeds, quick), jobs, out, force, progress)


def reproduce(
    figure: str,
    *,
    seeds: int | range | None = None,
    jobs: int | None = None,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    quick: bool = False,
    progress: bool | None = None,
) -> Result:
    """Run the experiment of a published figure; ``figures`` lists them.

    Parameters
    ----------
    figure : str
        The id of the figure, such as ``"async-fig2a"``.
    seeds, jobs, out, force, quick, progress
        As for ``run``.

    Returns
    -------
    Result
        What came of it.
    """
    first, count = _seeds(seeds)
    plan = _posse.plan(figure=figure, quick=quick, seed=first, repetitions=count)
    return _finish(plan, jobs, out, force, progress)


def load(directory: str | os.PathLike[str]) -> Result:
    """Read the results that ``run``, ``reproduce`` or the command left in a directory.

    Parameters
    ----------
    directory : path
        What was given as ``out``.

    Returns
    -------
    Result
        The results, all or as far as the run came. Own algorithms and worlds in them must be registered.

    Raises
    ------
    ExperimentError
        There are no results, or they cannot be read.
    """
    return Result(_posse.load(os.fspath(directory)))


def merge(
    out: str | os.PathLike[str], *parts: str | os.PathLike[str], force: bool = False
) -> Result:
    """Join the results of shards in one directory, as ``posse merge`` does.

    Parameters
    ----------
    out : path
        The directory to write the whole results to.
    *parts : path
        The directories of the parts.
    force : bool, optional
        Replace other results in ``out``.

    Returns
    -------
    Result
        The results of all parts, the same as those of one run.

    Raises
    ------
    ExperimentError
        The parts do not belong together, or do not make a whole.
    """
    if not parts:
        raise ConfigError("there are no parts to merge: give their directories after the first")
    arguments = ["merge", os.fspath(out), *(os.fspath(part) for part in parts)]
    _posse.command([*arguments, "--force"] if force else arguments)
    return load(out)


def _plan(
    experiment: str | os.PathLike[str] | Mapping[str, Any], seeds: int | range | None, quick: bool
) -> _posse.Running:
    first, count = _seeds(seeds)
    if isinstance(experiment, Mapping):
        return _posse.plan(settings=named(experiment), quick=quick, seed=first, repetitions=count)
    return _posse.plan(path=os.fspath(experiment), quick=quick, seed=first, repetitions=count)


def named(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """The experiment with names in the place of classes, which become known by them."""

    def plain(value: Any) -> Any:
        if isinstance(value, type) and issubclass(value, (Agent, World)):
            return name_of(value)
        if isinstance(value, Mapping):
            return {key: plain(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(inner) for inner in value]
        return value

    whole: dict[str, Any] = plain(experiment)
    return whole


def _seeds(seeds: int | range | None) -> tuple[int | None, int | None]:
    if seeds is None:
        return None, None
    if isinstance(seeds, range):
        if seeds.step != 1 or seeds.start < 0 or not seeds:
            raise ConfigError(f"`seeds` is {seeds}: expected a range of seeds that follow each other, from 0 on")
        return seeds.start, len(seeds)
    if seeds < 1:
        raise ConfigError(f"`seeds` is {seeds}: it must be at least 1")
    return None, seeds


def _finish(
    running: _posse.Running,
    jobs: int | None,
    out: str | os.PathLike[str] | None,
    force: bool,
    progress: bool | None,
) -> Result:
    if jobs is not None and not 1 <= jobs <= 65535:
        raise ConfigError(f"`jobs` is {jobs}: it must be at least 1, or left out")
    bar = _bar(progress)
    running.start(None if out is None else os.fspath(out), force, jobs)
    try:
        while not running.wait(_PATIENCE):
            _show(bar, running)
        _show(bar, running)
    except BaseException:
        # Ctrl-C, most often. Cells notice within an interaction, and what has finished is on the disk.
        running.stop()
        with contextlib.suppress(Error):
            while not running.wait(1.0):
                pass
        raise
    finally:
        if bar is not None:
            bar.close()
    return Result(running)


def _bar(progress: bool | None) -> Any:
    if progress is False:
        return None
    notebook = "ipykernel" in sys.modules
    if progress is None and not (notebook or sys.stderr.isatty()):
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=100, unit="%", bar_format="{l_bar}{bar}| {elapsed} gone{postfix}")


def _show(bar: Any, running: _posse.Running) -> None:
    if bar is not None:
        finished, cells, share = running.progress()
        bar.set_postfix_str(f"{finished}/{cells} cells", refresh=False)
        bar.update(100 * share - bar.n)
