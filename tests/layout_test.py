#!/usr/bin/env python3
"""Checks the layout of the tree: directions of includes, sizes of files, what lies where.

layout_test.py [ROOT]       lists every fault below ROOT (the project by default); exit 1 if any
layout_test.py --self-test  builds small trees that hold one fault each and expects its report
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

TOP_LEVEL = {"CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "run",
             "engine", "nn", "models", "data", "train", "tests"}
MAX_LINES = 500
MAX_BYTES = 700 * 1024
CODE = {".h", ".cpp", ".py", ".sh", ".cmake"}

# What a folder may include from the project; the longest matching folder decides.
MAY_INCLUDE = {
    "engine/kernels": ("engine/kernels/", "engine/threads.h", "engine/dtype.h", "engine/check.h"),
    "engine": ("engine/",),
    "nn": ("engine/", "nn/"),
    "models": ("engine/", "nn/", "models/"),
    "data": ("data/",),
    "train": ("engine/", "nn/", "models/", "data/", "train/"),
    "tests": ("engine/", "nn/", "models/", "data/", "train/", "tests/"),
}
STANDARD = r"[a-z_0-9]+"  # <vector>, <cstdint>; other headers end in .h or have a folder
# Where only some headers from outside are allowed.
MAY_INCLUDE_OUTSIDE = {
    "engine/kernels": STANDARD + r"|hwy/.*|fmt/.*|\w*intrin\.h|cpuid\.h|unistd\.h|sys/.*",
    "data": STANDARD + r"|utf8\.h|utf8/.*",
}
# Headers that only some folders may include, and why.
RESERVED = [
    (r"cxxopts\.hpp", ("train", "tests"), "flags belong to the programs"),
    (r"spdlog/.*|iostream|cstdio|stdio\.h", ("train", "tests"), "only programs print"),
    (r"utf8(\.h|/.*)", ("data", "tests"), "data/ alone reads texts"),
]
PRINTING = re.compile(r"\bstd::(cout|cerr|clog)\b|\bfmt::print\b|(?<![\w.>])(std::)?f?(printf|puts)\(")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.S)
TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(([^)]*)\)", re.M)
ASSERTION = re.compile(r"expect|assert|check|compare|fail", re.I)


def layer(path):
    """The folder of MAY_INCLUDE that decides for the path, or None."""
    fits = [name for name in MAY_INCLUDE if path.startswith(name + "/")]
    return max(fits, key=len, default=None)


def include_faults(path, text):
    home = layer(path)
    if home is None:
        return
    top = home.split("/")[0]
    for bracket, header in INCLUDE.findall(text):
        if bracket == '"':
            if not any(header.startswith(name + "/") for name in MAY_INCLUDE):
                yield f'includes "{header}", which is not a path from the root'
            elif not header.startswith(MAY_INCLUDE[home]) or ".." in header.split("/"):
                yield f'{home}/ may not include "{header}"'
            continue
        allowed = MAY_INCLUDE_OUTSIDE.get(home)
        if header.startswith(tuple(name + "/" for name in MAY_INCLUDE)):
            yield f'includes <{header}>; a path from the root goes in quotes'
        elif allowed and not re.fullmatch(allowed, header):
            yield f"{home}/ may not include <{header}>"
        for pattern, folders, why in RESERVED:
            if re.fullmatch(pattern, header) and top not in folders:
                yield f"{home}/ may not include <{header}>: {why}"


def code_faults(path, text):
    """Faults of one C++ file."""
    yield from include_faults(path, text)
    code = COMMENT.sub(lambda match: '""' if match.group(1) else "", text)
    if not path.startswith(("train/", "tests/")) and PRINTING.search(code):
        yield f"prints ({PRINTING.search(code).group(0)}): only programs print"
    if path.endswith(".h"):
        # A header that Highway includes once per target has Highway's own guard.
        if "#pragma once" not in text and "HWY_TARGET_TOGGLE" not in text:
            yield "lacks #pragma once"
        if re.search(r"^\s*using namespace\b", code, re.M):
            yield "has `using namespace` in a header"
    if path.startswith("tests/"):
        starts = list(TEST.finditer(code))
        ends = [match.start() for match in starts[1:]] + [len(code)]
        for match, end in zip(starts, ends):
            if not ASSERTION.search(code, match.end(), end):
                yield f"TEST({match.group(1)}) asserts nothing"


def file_faults(root, path):
    file = root / path
    if path.split("/")[0] not in TOP_LEVEL and not path.startswith("."):
        yield "does not belong at the top level"
    if file.stat().st_size > MAX_BYTES:
        yield f"has {file.stat().st_size} bytes, at most {MAX_BYTES} are allowed"
        return
    if file.suffix not in CODE and file.name not in ("run", "CMakeLists.txt"):
        return
    text = file.read_text(encoding="utf-8", errors="replace")
    lines = text.count("\n")
    if lines > MAX_LINES:
        yield f"has {lines} lines, at most {MAX_LINES} are allowed"
    if file.suffix in (".h", ".cpp"):
        yield from code_faults(path, text)


def list_files(root):
    """Paths below root: what git tracks or would track; every file where there is no git."""
    try:
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-z", "--cached",
             "--others", "--exclude-standard"], capture_output=True, check=True).stdout
        paths = listed.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        paths = [file.relative_to(root).as_posix() for file in root.rglob("*")]
        paths = [path for path in paths if not re.match(r"(build|out[^/]*|\.git)(/|$)", path)
                 and "__pycache__" not in path and path != "data/tinyshakespeare.txt"]
    return sorted({path for path in paths if path and (root / path).is_file()})


def tree_faults(root):
    """All faults below root, each as "path: fault", and the number of files."""
    paths = list_files(root)
    faults = [f"{path}: {fault}" for path in paths for fault in file_faults(root, path)]
    return faults, len(paths)


# --- The test of the test: good files, and one tree per fault ---------------------------------

GOOD = {
    "README.md": "# good\n",
    "run": "#!/bin/sh\n",
    ".gitignore": "/build/\n",
    "engine/kernels/softmax.h": '#pragma once\n#include <cstdint>\n#include "engine/threads.h"\n',
    "engine/kernels/softmax_simd.cpp": '#include <hwy/highway.h>\n#include <immintrin.h>\n',
    "engine/ops/softmax.cpp": '#include "engine/kernels/softmax.h"\n// std::cout << in a comment\n',
    "engine/threads.h": "#pragma once\nvoid snprintf_like(char*);\n",
    "nn/linear.cpp": '#include "engine/ops.h"\n#include "nn/module.h"\n',
    "models/gpt.cpp": '#include "nn/linear.h"\n#include "engine/ops.h"\n',
    "data/text.cpp": "#include <utf8.h>\n#include <fstream>\n",
    "train/train.cpp": '#include <cxxopts.hpp>\n#include <iostream>\n#include "data/text.h"\n'
                       '#include "models/gpt.h"\nint main() { std::cout << 1; }\n',
    "tests/nn/linear_test.cpp": '#include "nn/linear.h"\nTEST(Linear, Adds) {\n  EXPECT_EQ(1, 1);\n}\n',
}
TEST_OK = "TEST(A, B) {\n  EXPECT_TRUE(true);\n}\n"
BAD = [  # path, text, what the report must say
    ("engine/kernels/a.cpp", '#include "engine/tensor.h"\n', "engine/kernels/ may not include"),
    ("engine/kernels/a.cpp", '#include "engine/ops/softmax.h"\n', "engine/kernels/ may not include"),
    ("engine/kernels/a.cpp", "#include <nlohmann/json.hpp>\n", "engine/kernels/ may not include <nl"),
    ("engine/a.cpp", '#include "nn/module.h"\n', 'engine/ may not include "nn/module.h"'),
    ("engine/ops/a.cpp", '#  include "models/gpt.h"\n', "engine/ may not include"),
    ("nn/a.cpp", '#include "models/gpt.h"\n', "nn/ may not include"),
    ("nn/a.cpp", '#include "data/text.h"\n', "nn/ may not include"),
    ("models/a.cpp", '#include "train/config.h"\n', "models/ may not include"),
    ("models/a.cpp", '#include "data/text.h"\n', "models/ may not include"),
    ("data/a.cpp", '#include "engine/tensor.h"\n', "data/ may not include"),
    ("data/a.cpp", "#include <fmt/format.h>\n", "data/ may not include <fmt/format.h>"),
    ("train/a.cpp", '#include "tests/op_cases.h"\n', "train/ may not include"),
    ("engine/a.cpp", '#include "engine/../nn/module.h"\n', "engine/ may not include"),
    ("engine/a.cpp", '#include "tensor.h"\n', "not a path from the root"),
    ("engine/a.cpp", '#include "../nn/module.h"\n', "not a path from the root"),
    ("engine/a.cpp", "#include <nn/module.h>\n", "goes in quotes"),
    ("models/a.cpp", "#include <cxxopts.hpp>\n", "flags belong to the programs"),
    ("nn/a.cpp", "#include <spdlog/spdlog.h>\n", "only programs print"),
    ("engine/a.cpp", "#include <iostream>\n", "only programs print"),
    ("data/a.cpp", "#include <cstdio>\n", "only programs print"),
    ("engine/a.cpp", 'void f() { std::cerr << "x"; }\n', "prints (std::cerr)"),
    ("engine/a.cpp", 'void f() { fmt::print("x"); }\n', "prints (fmt::print)"),
    ("nn/a.cpp", 'void f() { printf("x"); }\n', "prints (printf()"),
    ("train/a.cpp", "#include <utf8.h>\n", "data/ alone reads texts"),
    ("engine/a.cpp", "//\n" * (MAX_LINES + 1), "has 501 lines"),
    ("tests/a.py", "#\n" * (MAX_LINES + 1), "has 501 lines"),
    ("notes.txt", "x\n", "top level"),
    ("src/a.cpp", "\n", "top level"),
    ("data/big.txt", "x" * (MAX_BYTES + 1), "at most"),
    ("engine/a.h", "int f();\n", "lacks #pragma once"),
    ("engine/a.h", "#pragma once\nusing namespace std;\n", "using namespace"),
    ("tests/a_test.cpp", "TEST(A, B) {\n}\n", "TEST(A, B) asserts nothing"),
    ("tests/a_test.cpp", TEST_OK + "TEST_F(C, D) {\n  // EXPECT\n}\n" + TEST_OK, "TEST(C, D)"),
]


def write_tree(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def self_test():
    failures = []
    for path, text, expected in [("README.md", GOOD["README.md"], None)] + BAD:
        with tempfile.TemporaryDirectory() as folder:
            write_tree(Path(folder), {**GOOD, path: text})
            faults, _ = tree_faults(Path(folder))
        right = [f for f in faults if f.startswith(path + ": ") and expected and expected in f]
        if faults != right or (expected and not faults):
            failures.append(f"{path} {text[:60]!r}: expected {expected!r}, got {faults}")
    return failures, len(BAD) + 1


def main():
    if sys.argv[1:] == ["--self-test"]:
        faults, count = self_test()
        noun = "trees"
    else:
        root = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent.parent
        faults, count = tree_faults(root.resolve())
        noun = "files"
    print(*faults, f"layout: {count} {noun}, {len(faults)} faults", sep="\n")
    return 1 if faults or not count else 0


if __name__ == "__main__":
    sys.exit(main())
