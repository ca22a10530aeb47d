"""What every lint here shares: the project's files, a report, a command line with a self-test.

A lint is a module with check(root) → problems. Run as a program it checks the project; with --self-test it proves on
invented trees that it can fail and that it does not cry wolf (its SELF_TEST table).
"""
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parents[2]
SKIP = 77  # what ctest takes for "skipped"
SKIPPED_FOLDERS = {".git", "build", "build-asan", "build-tsan", "__pycache__", ".cache"}
CODE = {".h", ".cpp", ".cu", ".cuh", ".metal", ".py", ".sh"}


class Skipped(Exception):
    """The check cannot be made here; the message says why."""


def project_files(root: Path) -> list[Path]:
    """Files that belong to the project: what git would commit, or all but build folders where there is no git."""
    git = subprocess.run(["git", "-c", f"safe.directory={root}", "ls-files", "-z", "--cached", "--others",
                          "--exclude-standard"], cwd=root, capture_output=True, check=False)
    if git.returncode == 0 and (root / ".git").exists():
        names = [root / name for name in git.stdout.decode().split("\0") if name]
    else:
        names = [path for path in root.rglob("*") if not SKIPPED_FOLDERS & set(path.relative_to(root).parts)]
    return sorted(path for path in set(names) if path.is_file())


def code_files(root: Path) -> list[Path]:
    return [path for path in project_files(root) if path.suffix in CODE]


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


# A case of a self-test: files by path, and what one problem must say ("" when there must be none).
Case = tuple[dict[str, str], str]


def self_test(check: Callable[[Path], list[str]], cases: list[Case]) -> list[str]:
    wrong = []
    for number, (files, expected) in enumerate(cases):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            problems = check(root)
        if expected == "" and problems:
            wrong.append(f"case {number}: found {problems} where nothing is wrong")
        elif expected and not any(expected in problem for problem in problems):
            wrong.append(f"case {number}: '{expected}' not found; got {problems}")
    if not any(expected for _, expected in cases) or all(expected for _, expected in cases):
        wrong.append("a self-test needs a case that fails and one that passes")
    return wrong


def main(check: Callable[[Path], list[str]], cases: list[Case],
         warn: Callable[[Path], list[str]] | None = None) -> None:
    try:
        if sys.argv[1:] == ["--self-test"]:
            problems = self_test(check, cases)
        else:
            problems = check(ROOT)
            for line in warn(ROOT) if warn else []:
                print(f"warning: {line}")
    except Skipped as reason:
        print(f"skipped: {reason}")
        sys.exit(SKIP)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    sys.exit(1 if problems else 0)
