#!/usr/bin/env python3
"""The project speaks of itself: no host of a package registry or model hub, no path of one machine, no ticket number."""
import re
from pathlib import Path

import lint

# Written in two halves: this file is checked too.
HOSTS = ["hugging" + "face.co", "hf" + ".co", "modelscope" + ".cn", "py" + "pi.org", "python" + "hosted.org",
         "npm" + "js.org", "npm" + "js.com", "crates" + ".io", "proxy.golang" + ".org", "deb.debian" + ".org",
         "archive.ubuntu" + ".com", "repo1.maven" + ".org", "rubygems" + ".org", "brew" + ".sh", "ghcr" + ".io"]
PATHS = [r"/wo" + r"rk/\w", r"/ro" + r"ot/\w", r"/ho" + r"me/\w+/", r"/Us" + r"ers/\w+/"]
TICKETS = [r"\b(?:issue|ticket|pull request)s? #?\d+\b"]
WORDS = [re.compile(r"(?<![\w.-])(?:[\w-]+\.)*" + re.escape(host) + r"\b", re.IGNORECASE) for host in HOSTS]
WORDS += [re.compile(r"(?<![\w.}/])" + path) for path in PATHS] + [re.compile(word, re.IGNORECASE) for word in TICKETS]

# Data that is what it is: vocabularies and recorded texts.
DATA = re.compile(r"^(models/.*\.(json|safetensors)|tests/(?:\w+/)?data/.*)$")


def check(root: Path) -> list[str]:
    problems = []
    for path in lint.project_files(root):
        name = path.relative_to(root).as_posix()
        raw = path.read_bytes()
        if DATA.match(name) or b"\0" in raw[:4096]:
            continue
        for number, line in enumerate(raw.decode("utf-8", errors="replace").splitlines(), 1):
            for word in WORDS:
                if found := word.search(line):
                    problems.append(f"{name}:{number}: '{found.group()}' does not belong in a project file")
    return problems


SELF_TEST = [
    ({"a.md": "see the hub\nand /usr/share/doc\n", "models/x/tokenizer.json": '"' + HOSTS[0] + '"'}, ""),
    ({"a.md": "ok\nhttps://" + HOSTS[0] + "/x\n"}, "a.md:2"),
    ({"src/a.cpp": '"https://cdn.' + HOSTS[1] + '"'}, "src/a.cpp:1"),
    ({"a.py": "x = '/wo" + "rk/main'\n"}, "a.py:1"),
    ({"a.md": "as iss" + "ue #12 says\n"}, "a.md:1"),
    ({"a.md": "half" + ".co is not " + "xhf" + ".com\n"}, ""),
]

if __name__ == "__main__":
    lint.main(check, SELF_TEST)
