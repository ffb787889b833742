"""Tests against other packages: `cargo xtask python --all` installs them and runs these."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def command() -> Path:
    """The ``posse`` command of this tree."""
    return Path(os.environ["POSSE_COMMAND"])
