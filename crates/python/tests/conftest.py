"""What several tests need."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def command() -> Path:
    """The ``posse`` command of this tree: the one that ``POSSE_COMMAND`` names, or one that cargo builds."""
    return _program("POSSE_COMMAND", ["--package", "posse-cli", "--bin", "posse"], "posse")


@pytest.fixture(scope="session")
def reference() -> list[list[str]]:
    """What ``crates/core/examples/play.rs`` prints: a list of words for each algorithm."""
    program = _program("POSSE_PLAY", ["--package", "posse-core", "--example", "play"], "examples/play")
    done = subprocess.run([program], check=True, capture_output=True, text=True)
    return [line.split() for line in done.stdout.splitlines()]


def _program(variable: str, target: list[str], path: str) -> Path:
    if variable in os.environ:
        return Path(os.environ[variable])
    subprocess.run(["cargo", "build", "--quiet", *target], check=True, cwd=ROOT)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / path
