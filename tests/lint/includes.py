#!/usr/bin/env python3
"""Include arrows between the folders of src go one way, and a quoted include names a file of src."""
import re
from pathlib import Path

import lint

CHAIN = ["base", "checkpoint", "model", "plan", "ops", "backend", "engine"]
# folder → folders that it may include besides itself
ALLOWED: dict[str, set[str]] = {folder: set(CHAIN[:rank]) for rank, folder in enumerate(CHAIN)}
ALLOWED |= {
    "text": {"base"},
    "hub": {"base"},
    "server": {"engine", "text", "base"} | set(CHAIN),
    "bench": set(CHAIN),
    "cli": {"bench", "server", "text", "hub"} | set(CHAIN),
}
# Headers that say by themselves who may see them: the wide libraries stay where they belong.
ONLY_IN = {"curl/curl.h": "hub", "openssl/evp.h": "base", "CLI/": "cli", "boost/beast": "server"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)


def check(root: Path) -> list[str]:
    problems = []
    for path in lint.code_files(root):
        parts = path.relative_to(root).parts
        if parts[0] != "src" or len(parts) < 3 or path.suffix == ".py":
            continue
        name, folder = "/".join(parts), parts[1]
        if folder not in ALLOWED:
            problems.append(f"{name}: tests/lint/includes.py does not know the folder src/{folder}")
            continue
        for quote, target in INCLUDE.findall(lint.text_of(path)):
            if quote == '"':
                other = target.split("/")[0]
                if not (root / "src" / target).is_file():
                    problems.append(f'{name}: #include "{target}" is no file of src')
                elif other != folder and other not in ALLOWED[folder]:
                    problems.append(f'{name}: {folder} may not include {other} ("{target}")')
            for prefix, owner in ONLY_IN.items():
                if target.startswith(prefix) and folder != owner:
                    problems.append(f"{name}: <{target}> belongs in src/{owner} alone")
    return problems


A = {"src/base/a.h": "", "src/engine/e.h": "", "src/text/t.h": ""}
SELF_TEST = [
    (A | {"src/engine/b.cpp": '#include "base/a.h"\n#include "engine/e.h"\n#include <vector>\n'}, ""),
    (A | {"src/base/b.cpp": '#include "engine/e.h"\n'}, "base may not include engine"),
    (A | {"src/engine/b.cpp": '# include "text/t.h"\n'}, "engine may not include text"),
    (A | {"src/text/b.cpp": '#include "base/b.h"\n'}, "is no file of src"),
    (A | {"src/engine/b.cpp": "#include <curl/curl.h>\n"}, "belongs in src/hub alone"),
    (A | {"src/misc/b.cpp": ""}, "does not know the folder"),
]

if __name__ == "__main__":
    lint.main(check, SELF_TEST)
