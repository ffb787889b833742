"""Tables of results, as numpy, Arrow, pandas and polars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ._posse import RawTable


class Table(Mapping[str, npt.NDArray[Any]]):
    """A table of results: named columns of equal length.

    As a mapping it gives each column as a numpy array. ``to_arrow`` wraps what Rust filled, after one copy;
    ``to_pandas`` and ``to_polars`` start from there.
    """

    def __init__(self, raw: RawTable) -> None:
        self._raw = raw
        self._names = list(raw.names)
        self._arrow: Any = None

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in the order of the Parquet file."""
        return list(self._names)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self._raw.rows

    def __len__(self) -> int:
        """How many columns there are, as of every mapping."""
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the columns."""
        return iter(self._names)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """One column.

        Whole numbers with missing values become floats with NaN; texts and switches become objects with None.
        """
        if name not in self._names:
            raise KeyError(name)
        kind, valid, offsets, values = self._raw.buffers(self._names.index(name))
        present = None if valid is None else _bits(valid, self.rows)
        if kind == "string":
            assert offsets is not None
            data = values.tobytes()
            texts = [data[a:b].decode() for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
            return np.array([t if present is None or present[i] else None for i, t in enumerate(texts)], dtype=object)
        if kind == "bool":
            switches: npt.NDArray[Any] = _bits(values, self.rows)
            if present is not None:
                switches = switches.astype(object)
                switches[~present] = None
            return switches
        return values if present is None else np.where(present, values, np.nan)

    def to_arrow(self) -> Any:
        """The table as a ``pyarrow.Table`` over the same memory."""
        if self._arrow is None:
            import pyarrow as pa

            types = {"int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_(), "string": pa.string()}
            arrays = []
            for index in range(len(self._names)):
                kind, valid, offsets, values = self._raw.buffers(index)
                buffers = [b if b is None else pa.py_buffer(b) for b in (valid, offsets, values)]
                if offsets is None:
                    del buffers[1]
                arrays.append(pa.Array.from_buffers(types[kind], self.rows, buffers))
            self._arrow = pa.Table.from_arrays(arrays, names=self._names)
        return self._arrow

    def to_pandas(self) -> Any:
        """The table as a ``pandas.DataFrame``."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The table as a ``polars.DataFrame``."""
        import polars

        return polars.from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the table to any library that speaks Arrow's C interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        """Sizes and names."""
        return f"<posse.Table of {self.rows} rows: {', '.join(self._names)}>"


def _bits(packed: npt.NDArray[Any], count: int) -> npt.NDArray[np.bool_]:
    return np.unpackbits(packed, count=count, bitorder="little").astype(np.bool_)
