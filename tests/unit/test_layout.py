"""The rules of the layout that import-linter cannot say (CONTRIBUTING, "Which room?")."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("agents", "infra", "models", "sql", "streams")
TOP_LEVEL = {
    *ROOMS,
    "tests",
    ".ci",
    ".gitignore",
    ".pre-commit-config.yaml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "docker-compose.yml",
    "pyproject.toml",
}
MOST_LINES = 320
# What models/ may use from outside: values and text, no input or output.
PURE = ("pydantic", "orjson", "json_repair", "rapidfuzz")
# What a room may import from the others, by dotted prefix.
NEIGHBOURS = {
    "models": (),
    "agents": ("models",),
    "sql": ("models",),
    "infra": ("models", "agents.ports"),
    "streams": ("models", "agents", "sql", "infra"),
}


def repository_files() -> list[str]:
    """Tracked files, and new ones that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def imports(file: Path) -> Iterator[str]:
    """Every module that the file imports, as `package.module`, wherever the import stands."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: import by the full name"
            assert node.module is not None
            yield node.module


def within(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def test_top_level_holds_only_rooms_and_what_tools_expect() -> None:
    found = {name.split("/")[0] for name in repository_files()}
    assert found <= TOP_LEVEL, f"does not belong at the top: {sorted(found - TOP_LEVEL)}"


def test_modules_are_short() -> None:
    long = {
        name: lines
        for name in repository_files()
        if name.endswith(".py") and not name.startswith("tests/")
        if (lines := len((ROOT / name).read_text().splitlines())) > MOST_LINES
    }
    assert not long, f"over {MOST_LINES} lines, so more than one reason to change: {long}"


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_only_their_neighbours(room: str) -> None:
    allowed = (room, *NEIGHBOURS[room])
    wrong = {
        f"{file.relative_to(ROOT)} imports {module}"
        for file in (ROOT / room).rglob("*.py")
        for module in imports(file)
        if within(module, (*ROOMS, "tests")) and not within(module, allowed)
    }
    assert not wrong


def test_models_need_only_the_standard_library_and_pure_packages() -> None:
    wrong = {
        f"{file.relative_to(ROOT)} imports {module}"
        for file in (ROOT / "models").rglob("*.py")
        for module in imports(file)
        if module.split(".")[0] not in {*sys.stdlib_module_names, "models", *PURE}
    }
    assert not wrong


def test_models_do_no_input_or_output() -> None:
    outside = {"asyncio", "io", "os", "pathlib", "shutil", "socket", "sqlite3", "subprocess", "threading"}
    wrong = {
        f"{file.relative_to(ROOT)} imports {module}"
        for file in (ROOT / "models").rglob("*.py")
        for module in imports(file)
        if module.split(".")[0] in outside
    }
    assert not wrong


@pytest.mark.parametrize("package", ["faust", "fastapi"])
def test_only_streams_streams_and_serves(package: str) -> None:
    wrong = {
        str(file.relative_to(ROOT))
        for room in ROOMS
        if room != "streams"
        for file in (ROOT / room).rglob("*.py")
        if any(within(module, (package,)) for module in imports(file))
    }
    assert not wrong
