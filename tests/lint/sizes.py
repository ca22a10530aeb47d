#!/usr/bin/env python3
"""Files and functions stay small: 500 lines soft and 900 hard; functions 60 soft and 120 hard, kernels 250."""
import re
from pathlib import Path

import lint

FILE_SOFT, FILE_HARD = 500, 900
FUNCTION_SOFT, FUNCTION_HARD, KERNEL_HARD = 60, 120, 250
KERNELS = (".cpu.cpp", ".cu", ".cuh", ".metal")
CPP = {".h", ".cpp", ".cu", ".cuh", ".metal"}

# Comments, string and character literals: blanked, so that a brace in them counts for nothing. Line breaks stay.
TRIVIA = re.compile(r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
                    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)
SCOPE = re.compile(r'\b(namespace|extern\s+"?)\b')
TYPE = re.compile(r"^\s*(?:template\s*<.*>\s*)?(?:typedef\s+)?(class|struct|union|enum)\b[^()]*$", re.DOTALL)


def blank(text: str) -> str:
    text = TRIVIA.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    # A macro's body is not a function of its own.
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda match: re.sub(r"[^\n]", " ", match.group()), text,
                  flags=re.MULTILINE)


def cpp_functions(text: str) -> list[tuple[int, str, int]]:
    """(line, head, lines) of each function with a body; lambdas and blocks belong to the function around them."""
    text = blank(text)
    found: list[tuple[int, str, int]] = []
    stack: list[tuple[str, int, str]] = []  # kind, offset of the head, head
    head_start = 0
    for match in re.finditer(r"[{};]", text):
        at, char = match.start(), match.group()
        if char == "{":
            head = text[head_start:at]
            inside = any(kind in ("function", "other") for kind, _, _ in stack)
            if inside:
                kind = "other"
            elif re.search(r"\bnamespace\b", head) or head.strip().startswith("extern"):
                kind = "scope"
            elif TYPE.match(head):
                kind = "scope"
            elif ")" in head and not head.rstrip().endswith("="):
                kind = "function"
            else:
                kind = "other"
            start = head_start + len(head) - len(head.lstrip())
            stack.append((kind, start, " ".join(head.split())))
        elif char == "}" and stack:
            kind, start, head = stack.pop()
            if kind == "function":
                found.append((text.count("\n", 0, start) + 1, head, text.count("\n", start, at) + 1))
        head_start = at + 1
    return found


def python_functions(text: str) -> list[tuple[int, str, int]]:
    import ast
    tree = ast.parse(text)
    return [(node.lineno, node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def measure(root: Path, file_limit: int, function_limit: int, kernel_limit: int) -> list[str]:
    problems = []
    for path in lint.code_files(root):
        name = path.relative_to(root).as_posix()
        text = lint.text_of(path)
        lines = text.count("\n")
        if lines > file_limit:
            problems.append(f"{name}: {lines} lines, at most {file_limit}")
        measure_of = cpp_functions if path.suffix in CPP else python_functions if path.suffix == ".py" else None
        functions = measure_of(text) if measure_of else []
        limit = kernel_limit if name.endswith(KERNELS) else function_limit
        for line, head, length in functions:
            if length > limit:
                problems.append(f"{name}:{line}: {length} lines in one function, at most {limit}: {head[:80]}")
    return problems


def check(root: Path) -> list[str]:
    return measure(root, FILE_HARD, FUNCTION_HARD, KERNEL_HARD)


def warn(root: Path) -> list[str]:
    return measure(root, FILE_SOFT, FUNCTION_SOFT, FUNCTION_HARD)


def body(lines: int) -> str:
    return "{\n" + "  x();\n" * (lines - 2) + "}\n"


SELF_TEST = [
    ({"src/a.cpp": "int x;\n" * 901}, "901 lines, at most 900"),
    ({"src/a.cpp": "int x;\n" * 900}, ""),
    ({"src/a.cpp": "namespace a {\nvoid f() " + body(121) + "}\n"}, "src/a.cpp:2: 121 lines"),
    ({"src/a.cpp": "namespace a {\nvoid f() " + body(120) + "}\n"}, ""),
    ({"src/a.cpp": "class A : public B {\n  A(int x) : x_{x}, y_(2) " + body(121) + "};\n"}, "121 lines"),
    ({"src/a.cpp": "TEST(A, B) " + body(121)}, "121 lines"),
    ({"src/a.cpp": "template <class T>\nauto f(T x) -> int " + body(121)}, "src/a.cpp:1: 122 lines"),
    ({"src/a.cpp": "struct A {\n" + "  int f() { return '}'; }\n" * 200 + "};\n"}, ""),
    ({"src/a.cpp": 'const char* s = "{"; // {\n' + "void f();\n" * 200}, ""),
    ({"src/a.cpp": "const A table = {\n" + "  {1, 2},\n" * 200 + "};\n"}, ""),
    ({"src/ops/x/x.cpu.cpp": "void f() " + body(250)}, ""),
    ({"src/ops/x/x.cpu.cpp": "void f() " + body(251)}, "at most 250"),
    ({"tools/a.py": "def f():\n" + "    x = 1\n" * 120}, "tools/a.py:1: 121 lines"),
]

if __name__ == "__main__":
    lint.main(check, SELF_TEST, warn)
