#!/usr/bin/env python3
"""Same op name everywhere: the kind in src/plan/op.h, a folder of src/ops (or its parts'), a row of docs/NUMERICS.md."""
import re
from pathlib import Path

import lint

ENUM = re.compile(r"enum class OpKind \{(.*?)count_", re.DOTALL)
NO_OPS = {"matmul", "probe"}  # what several ops share, and what measures the machine
ROW = re.compile(r"^\|\s*`(\w+)`", re.MULTILINE)


def check(root: Path) -> list[str]:
    kinds_at = root / "src/plan/op.h"
    enum = ENUM.search(lint.text_of(kinds_at)) if kinds_at.exists() else None
    if not enum:
        return ["src/plan/op.h: enum class OpKind { … count_ } was not found"]
    listed = re.sub(r"//[^\n]*", "", enum.group(1))
    kinds = re.findall(r"\w+", listed)
    folders = {path.name for path in (root / "src/ops").iterdir() if path.is_dir()}
    numerics = root / "docs/NUMERICS.md"
    rows = set(ROW.findall(lint.text_of(numerics))) if numerics.exists() else set()
    ops_text = "\n".join(lint.text_of(path) for path in (root / "src/ops").rglob("*.h"))
    made_text = "".join(lint.text_of(root / name) for name in ("src/plan/fusion_table.cpp", "src/ops/registry.cpp")
                        if (root / name).exists())
    problems = [f"src/ops/{folder}: no op of src/plan/op.h is called so" for folder in sorted(folders - set(kinds) - NO_OPS)]
    for kind in kinds:
        contract = root / "src/ops" / kind / f"{kind}.h"
        if kind in folders and not contract.is_file():
            problems.append(f"src/ops/{kind}: no contract {kind}.h")
        used = re.search(rf"::{kind}\b", made_text)  # a kind that nothing makes yet is only reserved
        if used and kind not in folders and not re.search(rf"\b{kind}\b", ops_text):
            problems.append(f"{kind}: neither a folder of src/ops nor named in a contract there")
        if kind not in rows:
            problems.append(f"docs/NUMERICS.md: no row for `{kind}`")
    problems += [f"docs/NUMERICS.md: `{row}` is no op" for row in sorted(rows - set(kinds))]
    return problems


ENUM_TEXT = "enum class OpKind {\n  add,  // a + b\n  add_twice,  // fused\n  count_,\n};"
TREE = {
    "src/plan/op.h": ENUM_TEXT, "src/ops/registry.cpp": "K::add, K::add_twice",
    "src/ops/add/add.h": "// and add_twice\n", "docs/NUMERICS.md": "| `add` |\n| `add_twice` |\n",
}
SELF_TEST = [
    (TREE, ""),
    (TREE | {"src/plan/op.h": ""}, "was not found"),
    (TREE | {"src/ops/gone/gone.h": ""}, "no op of src/plan/op.h"),
    (TREE | {"src/ops/add/add.h": "// alone\n"}, "add_twice: neither"),
    (TREE | {"docs/NUMERICS.md": "| `add` |\n"}, "no row for `add_twice`"),
    (TREE | {"docs/NUMERICS.md": TREE["docs/NUMERICS.md"] + "| `sub` |\n"}, "`sub` is no op"),
    ({key: text for key, text in TREE.items() if "add.h" not in key} | {"src/ops/add/add.ref.cpp": ""}, "no contract"),
]

if __name__ == "__main__":
    lint.main(check, SELF_TEST)
