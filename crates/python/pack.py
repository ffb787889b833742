"""Pack the module that the tests of the workspace have built as a wheel: ``pack.py MODULE VERSION DIRECTORY``.

This is for ``cargo xtask test``, which has compiled the module already. ``cargo xtask wheel`` and ``pip install .`` build with
maturin. Both take the same Python files and the same metadata.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import sysconfig
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def pack(module: Path, version: str, directory: Path) -> Path:
    """Write the wheel and return where it is."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"cp310-abi3-{platform}"
    info = f"posse-{version}.dist-info"
    files = {
        f"posse/{path.name}": path.read_bytes()
        for path in sorted((HERE / "python" / "posse").iterdir())
        if path.suffix in (".py", ".pyi") or path.name == "py.typed"
    }
    files["posse/_posse.abi3.so"] = module.read_bytes()
    metadata = f"Metadata-Version: 2.1\nName: posse\nVersion: {version}\nRequires-Dist: numpy>=1.26\n"
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: posse\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = f"{info}/RECORD"
    lines = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / f"posse-{version}-{tag}.whl"
    # Stored and not compressed: it is unpacked at once and thrown away.
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    print(pack(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
