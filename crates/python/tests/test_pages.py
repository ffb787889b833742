"""Notebooks run, the reference is fresh, and every name is documented in the manner of numpydoc."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posse

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_runs_from_its_first_cell_to_its_last(
    path: Path, command: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    monkeypatch.setenv("POSSE_COMMAND", os.fspath(command))
    space: dict[str, Any] = {"__name__": path.stem}
    drawn = 0
    with warnings.catch_warnings():
        # Other packages warn about each other, which is no matter of ours.
        warnings.simplefilter("ignore")
        for place, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"{path.name}, cell {place}", "exec"), space)
                drawn += len(plt.get_fignums())
                plt.close("all")
    assert drawn > 0


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_shows_what_it_drew(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    kinds = [kind for cell in cells for output in cell.get("outputs", []) for kind in output.get("data", {})]
    assert "image/png" in kinds, "run it with `cargo xtask python --pages`"
    assert not any(output["output_type"] == "error" for cell in cells for output in cell.get("outputs", []))


def test_there_are_three_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["first-federation", "reproduce-a-figure", "serve-and-evaluate"]


def test_the_own_algorithms_and_worlds_of_the_guide_run() -> None:
    guide = (ROOT / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "class " in block]
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "python.md", "exec"), {"posse": posse, "np": np})


def reference() -> Any:
    spec = importlib.util.spec_from_file_location("reference", Path(__file__).parents[1] / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_what_the_stubs_and_docstrings_say() -> None:
    written = (ROOT / "docs" / "guides" / "python-api.md").read_text(encoding="utf-8")
    assert written == reference().text(), "write it anew with crates/python/reference.py docs/guides/python-api.md"
    for name in set(posse.__all__) - {"__version__", "data", "testing"}:
        assert f"### {name}\n" in written, name


def test_functions_document_every_parameter_in_the_manner_of_numpydoc() -> None:
    things = [getattr(posse, name) for name in posse.__all__]
    things += [getattr(module, name) for module in (posse.data, posse.testing) for name in module.__all__]
    checked = 0
    for function in filter(inspect.isfunction, things):
        doc = inspect.getdoc(function) or ""
        for name, parameter in inspect.signature(function).parameters.items():
            stars = {inspect.Parameter.VAR_KEYWORD.name: r"\*\*", inspect.Parameter.VAR_POSITIONAL.name: r"\*"}
            star = stars.get(parameter.kind.name, "")
            assert re.search(rf"^(.*, )?{star}{name}\b.*$", doc, re.MULTILINE), f"{function.__name__}: {name}"
            checked += 1
    assert checked > 40
