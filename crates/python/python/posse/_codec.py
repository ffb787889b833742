"""Numbers, texts and arrays as bytes: for the messages and states of algorithms that are written in Python."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ._errors import DecodeError

_HEAD = b"posse\x01"


def pack(value: Any) -> bytes:
    """Encode a value as bytes, the same bytes for the same value on every machine.

    Parameters
    ----------
    value : object
        None, a switch, a whole number of at most 64 bits, a float, a text, bytes, a numpy array of numbers, or a list, tuple
        or dict of such values.

    Returns
    -------
    bytes
        What ``unpack`` makes the value of again.

    Raises
    ------
    TypeError
        Something in the value is of another type.

    Examples
    --------
    >>> import posse
    >>> posse.unpack(posse.pack({"count": 3, "mean": 0.5}))
    {'count': 3, 'mean': 0.5}
    """
    parts = [_HEAD]
    try:
        _write(value, parts)
    except RecursionError:
        raise TypeError("the value is nested too deep to be packed, or contains itself") from None
    return b"".join(parts)


def unpack(data: bytes) -> Any:
    """Decode what ``pack`` wrote.

    Parameters
    ----------
    data : bytes
        What ``pack`` returned.

    Returns
    -------
    object
        The value. Arrays are new and can be written to.

    Raises
    ------
    DecodeError
        The bytes are no such thing, or only part of one.
    """
    if not data.startswith(_HEAD):
        raise DecodeError("these bytes were not written by posse.pack")
    try:
        value, end = _read(data, len(_HEAD))
    except RecursionError:
        raise DecodeError("these bytes are nested too deep") from None
    except (struct.error, IndexError, OverflowError, ValueError, TypeError, KeyError) as error:
        raise DecodeError(f"these bytes are not whole: {error}") from None
    if end != len(data):
        raise DecodeError("there is more than one value in these bytes")
    return value


def _write(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        parts.append(b"N")
    elif isinstance(value, bool):
        parts.append(b"T" if value else b"F")
    elif isinstance(value, int):
        try:
            parts.append(b"i" + struct.pack("<q", value))
        except struct.error:
            raise TypeError(f"{value} has more than 64 bits") from None
    elif isinstance(value, float):
        parts.append(b"f" + struct.pack("<d", value))
    elif isinstance(value, str):
        text = value.encode()
        parts += [b"s", struct.pack("<Q", len(text)), text]
    elif isinstance(value, bytes):
        parts += [b"b", struct.pack("<Q", len(value)), value]
    elif isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise TypeError(f"an array of {value.dtype} cannot be packed: use numbers")
        array = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
        kind = array.dtype.str.encode()
        parts += [b"a", bytes([len(kind)]), kind, bytes([value.ndim]), struct.pack(f"<{value.ndim}Q", *value.shape)]
        parts.append(array.tobytes())
    elif isinstance(value, (list, tuple)):
        parts += [b"l" if isinstance(value, list) else b"t", struct.pack("<Q", len(value))]
        for item in value:
            _write(item, parts)
    elif isinstance(value, dict):
        parts += [b"d", struct.pack("<Q", len(value))]
        for key, item in value.items():
            _write(key, parts)
            _write(item, parts)
    else:
        raise TypeError(f"a {type(value).__name__} cannot be packed: use numbers, texts, bytes, arrays, lists or dicts")


def _read(data: bytes, at: int) -> tuple[Any, int]:
    tag, at = data[at : at + 1], at + 1
    if tag == b"N":
        return None, at
    if tag in (b"T", b"F"):
        return tag == b"T", at
    if tag == b"i":
        return struct.unpack_from("<q", data, at)[0], at + 8
    if tag == b"f":
        return struct.unpack_from("<d", data, at)[0], at + 8
    if tag == b"a":
        return _read_array(data, at)
    count: int = struct.unpack_from("<Q", data, at)[0]
    at += 8
    if tag in (b"s", b"b"):
        piece = data[at : at + count]
        if len(piece) != count:
            raise ValueError("a text is cut short")
        return (piece.decode() if tag == b"s" else piece), at + count
    # Every item takes a byte at least, so that a wrong count cannot ask for memory that is not there.
    if count > len(data) - at:
        raise ValueError("a list is cut short")
    items = []
    for _ in range(count * (2 if tag == b"d" else 1)):
        item, at = _read(data, at)
        items.append(item)
    if tag == b"l":
        return items, at
    if tag == b"t":
        return tuple(items), at
    if tag == b"d":
        return dict(zip(items[::2], items[1::2], strict=True)), at
    raise ValueError(f"nothing begins with {tag!r}")


def _read_array(data: bytes, at: int) -> tuple[Any, int]:
    width = data[at]
    kind = np.dtype(data[at + 1 : at + 1 + width].decode())
    if kind.kind not in "biuf":
        raise ValueError(f"an array of {kind}")
    at += 1 + width
    dimensions = data[at]
    shape = struct.unpack_from(f"<{dimensions}Q", data, at + 1)
    at += 1 + 8 * dimensions
    size = kind.itemsize
    for side in shape:
        size *= side
    if size > len(data) - at:
        raise ValueError("an array is cut short")
    array = np.frombuffer(data, dtype=kind, count=size // kind.itemsize, offset=at).reshape(shape)
    return array.copy(), at + size
