#!/usr/bin/env python3
"""Documents that the program writes are as it writes them now.

Usage: generated.py LILY          checks
       generated.py LILY --write  writes them
       generated.py --self-test
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import lint

# document → the command that prints it
GENERATED = {"docs/OPTIONS.md": ["help", "--markdown"], "docs/FUSIONS.md": ["help", "fusions"]}


def printed(lily: str, words: list[str]) -> str:
    run = subprocess.run([lily, *words], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"lily {' '.join(words)}: exit {run.returncode}: {run.stderr.strip()}")
    return run.stdout


def check(root: Path, lily: str, write: bool = False) -> list[str]:
    problems = []
    for name, words in GENERATED.items():
        document = root / name
        try:
            fresh = printed(lily, words)
        except (OSError, RuntimeError) as error:
            problems.append(str(error))
            continue
        if write:
            document.parent.mkdir(exist_ok=True)
            document.write_text(fresh, encoding="utf-8")
        if not document.exists() or document.read_text(encoding="utf-8") != fresh:
            problems.append(f"{name} is out of date: tests/lint/generated.py build/lily --write")
    return problems


def self_test() -> list[str]:
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lily = root / "lily"
        lily.write_text("#!/bin/sh\n[ \"$1\" = help ] && echo '# Options'\n")
        lily.chmod(0o755)
        if not check(root, str(lily)):
            wrong.append("a missing document passes")
        if check(root, str(lily), write=True) or check(root, str(lily)):
            wrong.append("a fresh document does not pass")
        (root / "docs/OPTIONS.md").write_text("# Old\n")
        if not check(root, str(lily)):
            wrong.append("an old document passes")
        lily.write_text("#!/bin/sh\nexit 1\n")
        if not check(root, str(lily)):
            wrong.append("a program that fails passes")
    return wrong


def main() -> int:
    words = sys.argv[1:]
    if words == ["--self-test"]:
        problems = self_test()
    elif len(words) == 1 or (len(words) == 2 and words[1] == "--write"):
        problems = check(lint.ROOT, words[0], write=len(words) == 2)
    else:
        print(__doc__)
        return 2
    print("\n".join(problems + [f"{len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
