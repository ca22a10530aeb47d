#!/usr/bin/env python3
"""Writes a C++ file that holds every file below a folder, so that the program serves its page from itself.

    tools/embed_files.py OUT.cpp DIR

DIR/index.html is served at "/", every other file at "/web/<its path below DIR>". OUT.cpp includes
server/web_files.h, so src must be on the include path; it is rewritten only when its content changes.
"""
import sys
from pathlib import Path

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
}
BYTES_A_LINE = 32

HEAD = """// Written by tools/embed_files.py: do not edit.
#include "server/web_files.h"

namespace lily::server {
namespace {
"""


def web_path(name: str) -> str:
    return "/" if name == "index.html" else "/web/" + name


def array(number: int, data: bytes) -> str:
    # Numbers and not a string: no compiler limits their count, and no byte needs an escape.
    lines = (",".join(map(str, data[at:at + BYTES_A_LINE])) for at in range(0, len(data), BYTES_A_LINE))
    # An empty array is not C++: an empty file gets one byte that its size leaves out.
    return f"const unsigned char kFile{number}[] = {{\n" + (",\n".join(lines) or "0") + "};\n"


def generate(folder: Path) -> str:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")
                   if path.is_file() and not path.name.startswith("."))
    if "index.html" not in names:
        raise SystemExit(f"{folder}: no index.html")
    arrays, rows = [], []
    for number, name in enumerate(names):
        suffix = Path(name).suffix
        if suffix not in CONTENT_TYPES:
            raise SystemExit(f"{folder / name}: no content type is known for '{suffix}': add it to CONTENT_TYPES")
        if any(char in name for char in '"\\\n'):
            raise SystemExit(f"{folder / name}: a name that cannot stand in a C++ string")
        data = (folder / name).read_bytes()
        arrays.append(f"// {name}\n{array(number, data)}")
        rows.append(f'    {{"{web_path(name)}", "{CONTENT_TYPES[suffix]}", kFile{number}, {len(data)}}},\n')
    return (HEAD + "".join(arrays) + "}  // namespace\n\nconst WebFile kWebFiles[] = {\n" + "".join(rows)
            + f"}};\nconst unsigned kWebFileCount = {len(rows)};\n\n}}  // namespace lily::server\n")


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    out, folder = Path(arguments[0]), Path(arguments[1])
    if not folder.is_dir():
        raise SystemExit(f"{folder}: not a folder")
    text = generate(folder)
    if not out.exists() or out.read_text(encoding="utf-8") != text:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
