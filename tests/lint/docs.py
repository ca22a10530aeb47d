#!/usr/bin/env python3
"""What the documents name exists: paths, links, make targets, lily's commands and flags, functions."""
import re
from pathlib import Path

import lint

PATH = re.compile(r"^[\w.<>*/+-]+$")
BARE = re.compile(r"^[\w.-]+\.(?:md|cmake|py|h|cpp|cu|metal|sh)$")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
FUNCTION = re.compile(r"^(?:\w+::)*~?(\w+)\(\)$")
COMMAND = re.compile(r"(?:^|[\s|;&(])(?:\./build/|build/)?lily ([a-z]+)((?:\s+[^|;&\n]+)?)")
MADE = ("build/", "build-asan/", "build-tsan/")  # folders that a build makes


def documents(root: Path) -> list[Path]:
    def is_document(name: str) -> bool:
        return (re.match(r"^(?:README|AGENTS)\.md$|^docs/(?!log/).*\.md$|^models/.*README\.md$|^src/.*\.md$", name)
                is not None)
    return [path for path in lint.project_files(root) if is_document(path.relative_to(root).as_posix())]


class Project:
    """What the documents may name."""

    def __init__(self, root: Path):
        self.root = root
        files = lint.project_files(root)
        self.names = {path.relative_to(root).as_posix() for path in files}
        self.base_names = {path.name for path in files}
        self.top = {name.split("/")[0] for name in self.names}
        self.folders = {name.split("/")[1] for name in self.names if name.startswith("src/") and name.count("/") > 1}
        makefile = root / "Makefile"
        rules = lint.text_of(makefile) if makefile.exists() else ""
        self.targets = set(re.findall(r"^([\w-]+):", rules, re.MULTILINE))
        sources = {name: lint.text_of(root / name) for name in self.names
                   if name.startswith(("src/", "tests/")) and name.endswith((".h", ".cpp", ".cu", ".metal"))}
        self.words = set(re.findall(r"\w+", "\n".join(sources.values())))
        cli = "\n".join(text for name, text in sources.items() if name.startswith(("src/cli/", "src/base/options")))
        self.literals = set(re.findall(r'"(-?-?[\w-]+)"', cli))
        self.literals |= {word for text in re.findall(r'"([\w\s-]+)"', cli) for word in text.split()}

    def has_path(self, text: str, document: Path) -> bool:
        pattern = re.sub(r"<[^>]*>", "*", text).rstrip("/")
        bases = [self.root, document.parent, self.root / "src"]
        return any(any(True for _ in base.glob(pattern)) for base in bases)

    def is_ours(self, text: str) -> bool:
        first = text.split("/")[0]
        ours = first in self.top or first in self.folders or first == ".."
        return "/" in text and not text.startswith(MADE) and ours


def problems_of_span(project: Project, text: str, document: Path) -> list[str]:
    problems = []
    if PATH.match(text):
        if project.is_ours(text) and not project.has_path(text, document):
            problems.append(f"there is no {text}")
        elif BARE.match(text) and text not in project.base_names:
            problems.append(f"no file is called {text}")
    if (function := FUNCTION.match(text)) and function.group(1) not in project.words:
        problems.append(f"no source names {function.group(1)}()")
    return problems + problems_of_commands(project, text)


def problems_of_commands(project: Project, text: str) -> list[str]:
    problems = []
    for line in text.splitlines():
        line = line.split(" #")[0]
        for target in re.findall(r"(?:^|[;&]\s*)(?:sudo )?make ([a-z][\w-]*)", line.strip()):
            if target not in project.targets:
                problems.append(f"the Makefile has no target {target}")
        for command, rest in COMMAND.findall(line):
            if command not in project.literals:
                problems.append(f"lily has no command {command}")
            for flag in re.findall(r"(?<!\S)--([a-z][\w-]*)", rest):
                if flag not in project.literals and "--" + flag not in project.literals:
                    problems.append(f"lily has no flag --{flag}")
    return problems


def check(root: Path) -> list[str]:
    project = Project(root)
    problems = []
    for document in documents(root):
        text = lint.text_of(document)
        name = document.relative_to(root).as_posix()
        found = []
        for _, block in FENCE.findall(text):
            found += problems_of_commands(project, block)
        prose = FENCE.sub("", text)
        for span in SPAN.findall(prose):
            found += problems_of_span(project, span.strip(), document)
        for target in LINK.findall(SPAN.sub("", prose)):
            path = target.split("#")[0]
            if path and "://" not in path and not (document.parent / path).exists():
                found.append(f"the link to {path} leads nowhere")
        problems += [f"{name}: {problem}" for problem in found]
    return problems


TREE = {
    "Makefile": "build: x\n\trun\n", "src/base/error.h": "void throw_it();", "src/ops/add/add.h": "",
    "src/cli/main.cpp": 'command("run"); option("temp", "run chat");', "tools/a.py": "",
}
SELF_TEST = [
    (TREE | {"README.md": "`src/base/error.h`, `base/error.h`, `src/ops/<op>/<op>.h`, `make build`, "
                          "`lily run --temp 1`, [t](tools/a.py), `a.py`, `throw_it()`, `config.json`, `~/.cache/x`, `build/lily`, `a/b`\n"
                          "```sh\nmake build && ./build/lily chat tiny\n```\n"}, ""),
    (TREE | {"README.md": "`src/base/gone.h`"}, "there is no src/base/gone.h"),
    (TREE | {"README.md": "`base/gone.h`"}, "there is no base/gone.h"),
    (TREE | {"docs/A.md": "`src/ops/<op>/<op>.metal`"}, "docs/A.md: there is no"),
    (TREE | {"AGENTS.md": "`gone.py`"}, "no file is called gone.py"),
    (TREE | {"README.md": "[x](docs/GONE.md)"}, "leads nowhere"),
    (TREE | {"README.md": "`make gone`"}, "no target gone"),
    (TREE | {"README.md": "```sh\n./build/lily gone tiny\n```\n"}, "no command gone"),
    (TREE | {"README.md": "`lily run tiny --gone 3`"}, "no flag --gone"),
    (TREE | {"docs/A.md": "`Error::gone()`"}, "no source names gone()"),
]

if __name__ == "__main__":
    lint.main(check, SELF_TEST)
