"""Write the API reference, ``docs/guides/python-api.md``: ``reference.py FILE``.

Signatures come from the stubs and from the sources, by reading them; documentation from the package itself. The tests
compare the file with what this writes.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent / "python" / "posse"
#: Modules that need packages which are not always there: they are read and not imported.
NEIGHBOURS = ("coba", "gymnasium", "ray", "river", "sklearn")
HEAD = """# posse in Python, every name

Everything that the package `posse` offers, for looking up; the [guide](python.md) is for reading. Made from the stubs and the
docstrings by `crates/python/reference.py`.
"""


def text() -> str:
    """The whole reference."""
    posse = importlib.import_module("posse")
    trees = {path.stem: _parsed(path) for path in sorted(PACKAGE.glob("*.py*"))}
    parts = [HEAD, "## posse\n"]
    modules = ("data", "testing")
    for name in sorted(set(posse.__all__) - {"__version__", *modules}, key=lambda name: (name.islower(), name)):
        parts.append(_entry(name, _find(name, trees), getattr(posse, name)))
    for module in modules:
        own = getattr(posse, module)
        parts.append(f"## posse.{module}\n\n{inspect.getdoc(own)}\n")
        for name in own.__all__:
            tree = trees[module] if _in(trees[module], name) else trees["_errors"]
            parts.append(_entry(name, _definition(tree, name), getattr(own, name)))
    for module in NEIGHBOURS:
        parts.append(f"## posse.{module}\n\n{ast.get_docstring(trees[module])}\n")
        for name in _public(trees[module]):
            parts.append(_entry(name, _definition(trees[module], name), None))
    return "\n".join(parts)


def _parsed(path: Path) -> ast.Module:
    """The tree of a file, whose classes know what is written about their fields."""
    source = path.read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            above = node.lineno - 2
            words: list[str] = []
            while lines[above].strip().startswith("#: "):
                words.insert(0, lines[above].strip()[3:])
                above -= 1
            node.words = " ".join(words)  # type: ignore[attr-defined]
    return tree


def _public(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise ValueError("a module without __all__")


def _in(tree: ast.Module, name: str) -> bool:
    return any(getattr(node, "name", None) == name for node in tree.body)


def _definition(tree: ast.Module, name: str) -> Any:
    return next(node for node in tree.body if getattr(node, "name", None) == name)


def _find(name: str, trees: dict[str, ast.Module]) -> Any:
    """Where a name is defined: in the sources, or in the stubs of what is compiled."""
    private = [tree for stem, tree in trees.items() if stem.startswith("_") and _in(tree, name)]
    return _definition(private[0], name)


def _entry(name: str, node: Any, thing: Any) -> str:
    if isinstance(node, ast.ClassDef):
        return _class(name, node, thing)
    return f"### {name}\n\n{_signature(name, node)}\n\n{_words(_doc(node, thing))}\n"


def _class(name: str, node: ast.ClassDef, thing: Any) -> str:
    methods = [item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
    made = next((item for item in methods if item.name in ("__new__", "__init__")), None)
    head = _signature(name, made, bound=True) if made is not None else f"```python\nclass {name}\n```"
    lines = [f"### {name}\n\n{head}\n\n{_words(_doc(node, thing))}\n"]
    for field in node.body:
        words = getattr(field, "words", "")
        if isinstance(field, ast.AnnAssign) and words:
            lines.append(f"- **`{name}.{ast.unparse(field.target)}`**: `{ast.unparse(field.annotation)}`. {words}")
    for method in methods:
        if method.name.startswith("_"):
            continue
        words = _words(_doc(method, getattr(thing, method.name, None) if thing is not None else None))
        is_property = any(isinstance(own, ast.Name) and own.id == "property" for own in method.decorator_list)
        if is_property:
            returned = "" if method.returns is None else f": `{ast.unparse(method.returns)}`"
            lines.append(f"- **`{name}.{method.name}`**{returned}. {_indent(words)}")
        else:
            lines.append(f"- **`{name}.{method.name}`**{_short(method)}. {_indent(words)}")
    return "\n".join(lines) + "\n"


def _arguments(node: Any, bound: bool) -> str:
    arguments = ast.unparse(node.args)
    return re.sub(r"^(self|cls)(, |$)", "", arguments) if bound else arguments


def _signature(name: str, node: Any, bound: bool = False) -> str:
    returned = "" if bound or node.returns is None else f" -> {ast.unparse(node.returns)}"
    asynchronous = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"```python\n{asynchronous}{name}({_arguments(node, bound)}){returned}\n```"


def _short(node: Any) -> str:
    returned = "" if node.returns is None else f" → `{ast.unparse(node.returns)}`"
    return f"`({_arguments(node, True)})`{returned}"


def _doc(node: Any, thing: Any) -> str:
    return ast.get_docstring(node) or (inspect.getdoc(thing) if thing is not None else "") or ""


def _words(doc: str) -> str:
    """A docstring of numpydoc as Markdown: sections become lists, examples blocks of code."""
    lines: list[str] = []
    rows = doc.splitlines()
    section = ""
    for place, row in enumerate(rows):
        below = rows[place + 1] if place + 1 < len(rows) else ""
        if below and set(below.strip()) == {"-"}:
            if section == "Examples":
                lines.append("```")
            section = row.strip()
            lines += [f"*{section}*", ""] + (["```python"] if section == "Examples" else [])
        elif row.strip() and set(row.strip()) == {"-"}:
            continue
        elif section and section != "Examples" and row and not row.startswith(" "):
            lines.append(f"- `{row}`")
        elif section and section != "Examples" and row.startswith("    "):
            lines.append("  " + row.strip())
        else:
            lines.append(row)
    if section == "Examples":
        lines.append("```")
    return re.sub(r"(?<!`)``([^`]+)``(?!`)", r"`\1`", "\n".join(line.rstrip() for line in lines)).strip()


def _indent(words: str) -> str:
    first, *rest = words.splitlines() or [""]
    return "\n".join([first, *("  " + line if line else "" for line in rest)])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), encoding="utf-8")
