"""Experiments on a Ray cluster. Needs the package ``ray``."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray

from . import _experiments
from ._errors import ConfigError, Error
from ._experiments import Result, load, merge

__all__ = ["run"]

#: Shards for each processor of the cluster: enough that none is idle for long while the last ones run.
SHARDS_PER_CORE = 8


def run(
    experiment: str | os.PathLike[str] | Mapping[str, Any],
    *,
    out: str | os.PathLike[str],
    seeds: int | range | None = None,
    quick: bool = False,
    shards: int | None = None,
    retries: int = 3,
    force: bool = False,
) -> Result:
    """Run an experiment on Ray: a task for each shard, joined by what ``posse merge`` does.

    The results are those of ``posse.run``, bit for bit, however often a worker dies: a task that was lost is run again.
    Finished shards are kept in ``out`` with ``.parts`` at its end, so that the same call goes on where it was interrupted.
    Data that the experiment names must be at the same path on every machine, and posse must be installed there.

    Parameters
    ----------
    experiment : path or mapping
        As for ``posse.run``. Classes of your own travel to the workers with it.
    out : path
        The directory to keep the results in.
    seeds, quick
        As for ``posse.run``.
    shards : int, optional
        How many tasks; by default eight for each processor of the cluster, and at most one for each cell.
    retries : int, optional
        How often a task whose worker died is run again.
    force : bool, optional
        Replace other results in ``out``.

    Returns
    -------
    Result
        What came of it.

    Raises
    ------
    ConfigError
        Something in the experiment is wrong.
    ray.exceptions.RayError
        A task was lost more often than ``retries``.
    """
    # Mistakes are found here, before anything is sent.
    cells = _experiments._plan(experiment, seeds, quick).cells()
    if not ray.is_initialized():
        ray.init()
    cores = int(ray.cluster_resources().get("CPU", 1))
    count = shards if shards is not None else min(cells, SHARDS_PER_CORE * cores)
    if not 1 <= count <= cells:
        raise ConfigError(f"`shards` is {count}: there are {cells} cells, so 1 to {cells} shards")
    source: Any = dict(experiment) if isinstance(experiment, Mapping) else _text(experiment)
    out = Path(out)
    parts = out.with_name(out.name + ".parts")
    if force:
        shutil.rmtree(parts, ignore_errors=True)
    places = [parts / f"{number}-of-{count}" for number in range(1, count + 1)]
    task = ray.remote(num_cpus=1, max_retries=retries)(_shard)
    waiting = {}
    for number, place in enumerate(places, start=1):
        if not _is_finished(place):
            waiting[task.remote(source, seeds, quick, f"{number}/{count}")] = place
    while waiting:
        (done,), _ = ray.wait(list(waiting), num_returns=1)
        _keep(ray.get(done), waiting.pop(done))
    result = merge(out, *places, force=force)
    shutil.rmtree(parts)
    return result


def _shard(source: Any, seeds: int | range | None, quick: bool, shard: str) -> dict[str, bytes]:
    """Runs on a worker: the files of a shard's results."""
    with tempfile.TemporaryDirectory(prefix="posse-") as folder:
        experiment = source
        if not isinstance(source, dict):
            name, text = source
            experiment = Path(folder) / name
            experiment.write_text(text, encoding="utf-8")
        plan, out = _experiments._plan(experiment, seeds, quick), Path(folder) / "out"
        plan.start(str(out), False, 1, shard)
        while not plan.wait(1.0):
            pass
        files = (path for path in out.rglob("*") if path.is_file())
        return {str(path.relative_to(out)): path.read_bytes() for path in files}


def _text(path: str | os.PathLike[str]) -> tuple[str, str]:
    return Path(path).name, Path(path).read_text(encoding="utf-8")


def _keep(files: dict[str, bytes], place: Path) -> None:
    """Writes a shard beside its place and then moves it there, so that what is there is whole."""
    beside = place.with_name(place.name + ".new")
    shutil.rmtree(beside, ignore_errors=True)
    for name, content in files.items():
        path = beside / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    beside.rename(place)


def _is_finished(place: Path) -> bool:
    if not place.exists():
        return False
    try:
        done, _ = load(place)._running.finished()
    except Error:
        return False
    return done > 0
