"""What another policy would have earned, from a log of decisions."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import _posse, data
from ._errors import ConfigError, ExperimentError, InputError
from ._own import Agent, name_of

#: The options of ``prepare`` that say what the columns of a frame are.
_COLUMNS = ("action", "reward", "propensity", "user", "agent", "time", "context", "per_item", "items", "item")


class Estimate(NamedTuple):
    """An estimate of what a policy earns per decision."""

    #: The estimate.
    value: float
    #: The lower end of its interval; None if there are too few rows for one.
    low: float | None
    #: The upper end of its interval, or None.
    high: float | None
    #: How many rows of the log it rests on, in effect.
    effective: float
    #: The parameter of the estimator, if it has one.
    parameter: float | None = None


class Evaluation:
    """What came of an evaluation.

    Attributes
    ----------
    logged : float
        What the policy that made the log earned per decision.
    estimates : dict of str to Estimate or None
        What the other policy would have earned, by estimator: ``dm``, ``ips``, ``snips``, ``dr`` and so on; None where an
        estimator cannot say. With ``replay=True`` the only one is ``replay``.
    warnings : list of str
        Why the estimates may mislead.
    document : dict
        Everything, as ``posse evaluate --json`` prints it.
    """

    logged: float
    estimates: dict[str, Estimate | None]
    warnings: list[str]
    document: dict[str, Any]

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.logged = document["logged"]
        self.warnings = list(document.get("warnings", []))
        written = document["estimates"] if "estimates" in document else {"replay": document["estimate"]}
        self.estimates = {name: _estimate(own) for name, own in written.items()}

    def to_pandas(self) -> Any:
        """The estimates as a ``pandas.DataFrame`` with a row for each estimator."""
        import pandas

        rows = {name: own._asdict() for name, own in self.estimates.items() if own is not None}
        return pandas.DataFrame.from_dict(rows, orient="index", columns=list(Estimate._fields))

    def plot(self, ax: Any = None) -> Any:
        """Draw the estimates with their intervals beside what was logged, with matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default the current axes.

        Returns
        -------
        matplotlib.axes.Axes
            The axes that were drawn on.
        """
        if ax is None:
            import matplotlib.pyplot

            ax = matplotlib.pyplot.gca()
        known = {name: own for name, own in self.estimates.items() if own is not None}
        for place, own in enumerate(known.values()):
            if own.low is not None and own.high is not None:
                ax.plot([own.low, own.high], [place, place], color="C0")
            ax.plot([own.value], [place], "o", color="C0")
        ax.axvline(self.logged, color="C1", label="logged")
        ax.set_yticks(range(len(known)), list(known))
        ax.set_xlabel("reward per decision")
        ax.legend()
        return ax

    def __str__(self) -> str:
        """The estimates in columns."""
        lines = [f"{'logged':<8} {self.logged:>9.5f}"]
        for name, own in self.estimates.items():
            if own is None:
                lines.append(f"{name:<8} {'-':>9}")
            else:
                # One row has no interval.
                interval = "-" if own.low is None or own.high is None else f"{own.low:.5f} to {own.high:.5f}"
                lines.append(f"{name:<8} {own.value:>9.5f} {interval:>21}  {own.effective:>9.0f}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        """What was logged, and which estimates there are."""
        return f"<posse.Evaluation: logged {self.logged:.5f}, {', '.join(self.estimates)}>"


def evaluate(
    log: Any,
    policy: str | Mapping[str, Any] | type[Agent] | Any,
    *,
    agents: int = 1,
    by: str = "user",
    replay: bool = False,
    learn: float = 0.5,
    explore: float = 0.1,
    level: float = 0.95,
    interval: str = "normal",
    bootstrap: int | None = None,
    clip: float | None = None,
    model: str | None = None,
    seed: int = 0,
    **columns: Any,
) -> Evaluation:
    """Estimate from a log of decisions what another policy would have earned.

    Parameters
    ----------
    log : path or frame
        A prepared log (see ``posse.data.prepare``), or a frame: anything with Arrow's interface, such as a pandas or polars
        ``DataFrame`` or a ``pyarrow.Table``.
    policy : str, mapping, type of Agent, array_like or frame
        An algorithm by name, or with settings (``{"name": "async-lin-ucb", "threshold": 5}``), or a class of your own: its agents
        learn from the first rows and are judged on the others. Or the probabilities of a policy that is judged on all rows:
        one number for each row, the probability of what was done; or a column for each action, in the order of the log's
        actions, or a frame whose columns are called like them.
    agents : int, optional
        How many agents share the log.
    by : {"user", "agent", "row"}, optional
        What decides which agent has a row.
    replay : bool, optional
        Learn while the log passes by, from the rows in which the policy would have done what was done.
    learn : float, optional
        The share of rows to learn from.
    explore : float, optional
        The share of decisions that the policy would take at random.
    level : float, optional
        The probability with which intervals cover.
    interval : {"normal", "bootstrap", "bernstein"}, optional
        How intervals are made.
    bootstrap : int, optional
        Make intervals from so many resampled logs.
    clip : float, optional
        The most that a row may weigh; ``float("inf")`` for no limit. By default the root of the number of rows.
    model : {"means", "ridge", "stumps"}, optional
        What predicts rewards; by default whichever predicts best.
    seed : int, optional
        The seed of the agents and of resampling.
    **columns
        For frames: which columns are what, as ``posse.data.prepare("log", ...)`` takes it: ``action``, ``reward``,
        ``propensity``, ``user``, ``agent``, ``time``, ``context``, ``items``. Without ``propensity`` all actions were equally
        likely.

    Returns
    -------
    Evaluation
        Estimates with intervals, and what to beware of.

    Raises
    ------
    ExperimentError
        The log or the policy is wrong; the text says where.
    """
    wrong = [key for key in columns if key not in _COLUMNS]
    if wrong:
        raise ConfigError(f"`{wrong[0]}` is no option of evaluate: columns are {', '.join(_COLUMNS)}")
    with contextlib.ExitStack() as stack:
        if isinstance(log, (str, os.PathLike)):
            if columns:
                raise ConfigError(f"`{next(iter(columns))}` is for frames: a prepared log knows its columns")
            directory = Path(log)
        else:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="posse-"))) / "log"
            data.prepare("log", log, directory, **{"action": "action", "reward": "reward", **columns})
        arguments = ["evaluate", str(directory), "--json"]
        options = {"level": level, "interval": interval, "bootstrap": bootstrap, "model": model, "seed": seed}
        if isinstance(policy, (str, Mapping)) or (isinstance(policy, type) and issubclass(policy, Agent)):
            arguments += _algorithm(policy)
            options |= {"agents": agents, "by": by, "replay": replay, "learn": learn, "explore": explore}
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="posse-"))
            arguments += ["--policy", _probabilities(policy, directory, Path(folder))]
        if clip is not None:
            options["clip"] = "none" if clip == float("inf") else clip
        try:
            return Evaluation(json.loads(_posse.command([*arguments, *data.flags(options)])))
        except ExperimentError as error:
            # The file is gone when the message is read.
            given = arguments[arguments.index("--policy") + 1] if "--policy" in arguments else None
            if given is None:
                raise
            raise ExperimentError(str(error).replace(given, "the policy as CSV")) from None


def _estimate(written: dict[str, Any] | None) -> Estimate | None:
    # An estimator that cannot say leaves its numbers out, or says null.
    if not written or "value" not in written:
        return None
    return Estimate(*(written.get(field) for field in Estimate._fields))  # type: ignore[arg-type]


def _algorithm(policy: str | Mapping[str, Any] | type[Agent]) -> list[str]:
    settings = dict(policy) if isinstance(policy, Mapping) else {"name": policy}
    if "name" not in settings:
        raise ConfigError("the policy has no `name`: for example {'name': 'async-lin-ucb', 'threshold': 5}")
    arguments = ["--algorithm", name_of(settings.pop("name"))]
    for key, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        arguments.append(f"--set={key}={text}")
    return arguments


def _probabilities(policy: Any, log: Path, folder: Path) -> str:
    names: list[str]
    if hasattr(policy, "__arrow_c_stream__"):
        import pyarrow as pa

        table = pa.table(policy)
        names = table.column_names
        try:
            numbers = np.column_stack([column.to_numpy() for column in table.columns]).astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"the policy is no table of probabilities: {error}") from None
    else:
        try:
            numbers = np.asarray(policy, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"the policy is neither an algorithm nor a table of probabilities: {error}") from None
        if numbers.ndim == 1:
            names, numbers = ["probability"], numbers[:, None]
        elif numbers.ndim == 2:
            items = data.load(log, verify=False)["items"]
            names = [str(name) for name in items.column(0).to_pylist()]
        else:
            raise InputError(f"probabilities have {numbers.ndim} dimensions: expected one or two")
        if numbers.shape[1] != len(names):
            raise InputError(f"there are {numbers.shape[1]} columns of probabilities: the log has {len(names)} actions")
    path = folder / "policy.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for row in numbers:
            writer.writerow([repr(float(number)) for number in row])
    return str(path)
