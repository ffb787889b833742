"""Run the notebooks of ``docs/notebooks`` and keep what they print and draw in them.

``cargo xtask python --pages`` calls it, in an environment with nbclient and ipykernel.
"""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat

NOTEBOOKS = Path(__file__).resolve().parents[2] / "docs" / "notebooks"


def main() -> None:
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        book = nbformat.read(path, as_version=4)
        nbclient.NotebookClient(book, timeout=600, kernel_name="python3").execute()
        for cell in book.cells:
            # When a cell ran says nothing about what it shows, and progress and warnings are of the machine that ran it.
            cell.metadata.pop("execution", None)
            if cell.cell_type == "code":
                cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        book.metadata.language_info = {"name": "python"}
        nbformat.write(book, path)
        print(f"{path.name}: {len(book.cells)} cells")


if __name__ == "__main__":
    main()
