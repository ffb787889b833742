"""Data sets: prepared from files or frames, inspected, and loaded as frames.

What is prepared here is what ``posse data prepare`` makes: experiments name it by directory and hash, ``posse.evaluate``
takes logs.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import _posse
from ._errors import ConfigError, ExperimentError, InputError

__all__ = ["DataSet", "Prepared", "inspect", "load", "prepare", "published"]


class DataSet(NamedTuple):
    """A published data set that ``prepare`` knows by name."""

    #: The name that ``prepare`` takes.
    name: str
    #: Everything that ``posse data list`` tells about it: publisher, licence, address, files.
    about: dict[str, Any]


class Prepared(NamedTuple):
    """Prepared data."""

    #: Where it is.
    directory: Path
    #: What it is: ``table``, ``clusters``, ``recommender``, ``users`` or ``log``.
    kind: str
    #: The hash of its content.
    hash: str
    #: How much there is of what.
    counts: dict[str, int]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of an experiment with this data, to be completed with settings."""
        worlds = {"table": "classification", "clusters": "clustered-arms", "users": "clustered-users"}
        if self.kind == "log":
            raise ConfigError("a log is no world: posse.evaluate takes it")
        return {"kind": worlds.get(self.kind, self.kind), "data": str(self.directory), "hash": self.hash}


def published() -> list[DataSet]:
    """Every published data set that ``prepare`` knows by name.

    Returns
    -------
    list of DataSet
        What ``posse data list`` shows.
    """
    return [DataSet(about["name"], about) for about in _known()]


def prepare(
    name: str,
    raw: Any,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    **options: Any,
) -> Prepared:
    """Make a world or a log of raw data: every value is checked, and written as Parquet with a manifest.

    Parameters
    ----------
    name : str
        A published data set (``published`` lists them), or of your own: ``"table"`` with labels, ``"log"`` of decisions,
        ``"events"`` of users who took items, ``"ratings"``.
    raw : path or frame
        The directory with the publisher's files; for data of your own a file (text; Parquet for events and logs), or a frame:
        anything with Arrow's interface, such as a pandas or polars ``DataFrame`` or a ``pyarrow.Table``.
    out : path
        The directory to make.
    force : bool, optional
        Replace prepared data that is there already.
    **options
        The options of ``posse data prepare`` with ``_`` for ``-``: ``label="repaid"``, ``no_header=True``,
        ``context=["age", "hour"]``. ``items`` may be a frame too.

    Returns
    -------
    Prepared
        What was made.

    Raises
    ------
    ExperimentError
        The data is wrong; the text says in which file, line and column.
    """
    with contextlib.ExitStack() as stack:
        arguments = ["data", "prepare", name, "--quiet", "--out", os.fspath(out)]
        # Whether something was clicked is a number as well.
        file = stack.enter_context(_file(raw, "raw", options.get("reward")))
        arguments += ["--raw", file]
        arguments += ["--force"] if force else []
        if "items" in options:
            options = {**options, "items": stack.enter_context(_file(options["items"], "items"))}
        try:
            _posse.command([*arguments, *flags(options)])
        except ExperimentError as error:
            if isinstance(raw, (str, os.PathLike)):
                raise
            # The file is gone when the message is read.
            raise ExperimentError(str(error).replace(file, "the frame as CSV")) from None
    return _prepared(out)


def inspect(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """What is in a prepared directory.

    Parameters
    ----------
    directory : path
        What ``prepare`` made.

    Returns
    -------
    dict
        ``manifest``: name, kind, hash, licence, settings, sources, tables and counts; ``histograms`` of what says most.
    """
    document: dict[str, Any] = json.loads(_posse.command(["data", "inspect", os.fspath(directory), "--json"]))
    return document


def load(directory: str | os.PathLike[str], *, verify: bool = True) -> dict[str, Any]:
    """Read prepared data as frames.

    Parameters
    ----------
    directory : path
        What ``prepare`` made.
    verify : bool, optional
        Compare everything with the hash of the manifest first.

    Returns
    -------
    dict of str to pyarrow.Table
        Each table under the name of its file, without ``.parquet``. ``to_pandas()`` and ``polars.from_arrow`` go on from there.
    """
    import pyarrow.parquet

    directory = Path(directory)
    if verify:
        verdict = json.loads(_posse.command(["data", "verify", str(directory), "--json"]))[0]
        if verdict["error"] is not None:
            raise ExperimentError(verdict["error"])
    files = [table["file"] for table in inspect(directory)["manifest"]["tables"]]
    return {Path(file).stem: pyarrow.parquet.read_table(directory / file) for file in files}


def _known() -> list[dict[str, Any]]:
    document: list[dict[str, Any]] = json.loads(_posse.command(["data", "list", "--json"]))
    return document


def _prepared(directory: str | os.PathLike[str]) -> Prepared:
    manifest = inspect(directory)["manifest"]
    return Prepared(Path(directory), manifest["kind"], manifest["hash"], manifest["counts"])


def flags(options: dict[str, Any]) -> list[str]:
    """Keyword arguments as arguments of the command."""
    arguments = []
    for key, value in options.items():
        flag = "--" + key.replace("_", "-")
        if value is True:
            arguments.append(flag)
        elif value is None or value is False:
            continue
        elif isinstance(value, Sequence) and not isinstance(value, str):
            arguments.append(f"{flag}={','.join(str(item) for item in value)}")
        else:
            arguments.append(f"{flag}={value}")
    return arguments


def _plain(table: Any, number: str | None) -> Any:
    """The table with categories and other libraries' texts as plain texts, and switches in the column ``number`` as 0 and 1."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if field.name == number and pa.types.is_boolean(kind):
            kind = pa.int8()
        if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
            kind = pa.string()
        if kind != field.type:
            table = table.set_column(place, field.name, table.column(place).cast(kind))
    return table


@contextlib.contextmanager
def _file(source: Any, name: str, number: str | None = None) -> Iterator[str]:
    """The path of a file or directory, or of a file that a frame is written to for as long as it is needed."""
    if isinstance(source, (str, os.PathLike)):
        yield os.fspath(source)
        return
    if not hasattr(source, "__arrow_c_stream__"):
        raise ConfigError(f"a {type(source).__name__} is no data: pass a path, or a frame that speaks Arrow")
    import pyarrow as pa
    import pyarrow.csv

    with tempfile.TemporaryDirectory(prefix="posse-") as directory:
        path = Path(directory) / f"{name}.csv"
        # Every kind of data can be read from text, and numbers are written with all their digits.
        try:
            plain = _plain(pa.table(source), number)
            pyarrow.csv.write_csv(plain, path, pyarrow.csv.WriteOptions(quoting_style="needed"))
        except (ValueError, TypeError, NotImplementedError) as error:
            # Columns of lists or of mixed types, and names that are there twice.
            raise InputError(f"the frame cannot be written as text: {error}") from None
        yield str(path)
