"""A newcomer pastes what the README says, from top to bottom: its `bash` blocks run as they stand."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from tests.acceptance.local_server import LocalServer

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
END = "--- end of block ---"


def blocks(section: str) -> list[str]:
    """The `bash` blocks of a section of the README."""
    parts = SECTION.split((ROOT / "README.md").read_text())
    return BLOCK.findall(dict(zip(parts[1::2], parts[2::2], strict=True))[section])


class Terminal:
    """One shell that blocks are pasted into; it ends with the first command that fails."""

    def __init__(self, data_dir: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KEEPSAKE_")}
        self.environment = {**kept, "KEEPSAKE_DATA_DIR": str(data_dir / "data"), "KEEPSAKE_HTTP_PORT": "0"}
        self.data_dir = data_dir
        self.log = (data_dir / "terminal.log").open("w+")
        self._shell = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            cwd=ROOT,
            env=self.environment,
        )
        self.paste("set -eo pipefail")

    def paste(self, block: str) -> str:
        """Run a block to its end; what it printed. Fails with what it said on standard error."""
        file = self.data_dir / "block.sh"
        file.write_text(block)
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"source {file} </dev/null; echo; echo '{END}'\n")
        self._shell.stdin.flush()
        printed: list[str] = []
        for line in self._shell.stdout:
            if line.rstrip("\n") == END:
                return "".join(printed)
            printed.append(line)
        self.log.seek(0)
        pytest.fail(f"failed:\n{block}\nprinted:\n{''.join(printed)}\nsaid:\n{self.log.read()[-3000:]}")

    def close(self) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait(60)
        self.log.close()
        subprocess.run(
            [sys.executable, "-m", "streams.cli", "down"],
            cwd=ROOT,
            env=self.environment,
            check=True,
            timeout=120,
        )


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with tempfile.TemporaryDirectory(prefix="keepsake-readme-") as directory:
        # PostgreSQL's own user must get in.
        Path(directory).chmod(0o755)
        opened = Terminal(Path(directory))
        try:
            yield opened
        finally:
            opened.close()


class GeminiServer(LocalServer):
    """Gemini's wire format, and no model; `asked` are the requests."""

    path = "/models/gemini-2.5-flash:generateContent"

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        part = {"text": f"Hello, number {len(self.asked)}."}
        return web.json_response(
            {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}
        )


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


@pytest.mark.short
def test_what_the_readme_says_works(terminal: Terminal) -> None:
    install, addresses = blocks("Start")
    terminal.paste(install)
    terminal.paste(addresses)
    url, token = terminal.paste('echo "$URL $TOKEN"').split()
    client = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False)

    from_python, console, over_http = blocks("Publish")
    terminal.paste(from_python)
    terminal.paste(console)
    assert json.loads(terminal.paste(over_http))["accepted"] == 1

    subscriber, opener = blocks("Subscribe")
    assert "'user_id': 'ann'" in terminal.paste(subscriber)
    assert "nurse" in terminal.paste(opener)
    wait_until(lambda: client.get("/v1/users/ann/characters/coach").json()["memories"] == 1)

    (recall,) = blocks("Recall")
    answer = json.loads(terminal.paste(recall))
    assert "nurse" in answer["memories"][0]["summary"]

    context, loop = blocks("Context")
    composed = json.loads(terminal.paste(context))
    assert "nurse" in composed["system"]
    assert composed["messages"][-1]["content"].endswith("Do you remember my dog?")
    with GeminiServer() as gemini:
        terminal.paste('cd "$(mktemp -d)"')
        terminal.paste(loop)
        told = terminal.paste(
            f"printf 'Hello again!\\nWhat do I do for work?\\n' | GEMINI_API_KEY=none "
            f"GOOGLE_GEMINI_BASE_URL={gemini.base_url.removesuffix('/v1')} python3 chat.py"
        )
        terminal.paste("cd - > /dev/null")
    assert told.splitlines()[:2] == ["Hello, number 1.", "Hello, number 2."]
    first, second = gemini.asked
    assert "nurse" in first["systemInstruction"]["parts"][0]["text"]
    assert second["contents"][-1]["role"] == "user"
    assert second["contents"][-1]["parts"][0]["text"].endswith("What do I do for work?")
    (why,) = blocks("Why did it not remember?")
    explained = terminal.paste(why)
    assert "returned" in explained
    assert "not a memory yet: coach" in explained

    status, memories, flush, ready = terminal.paste(blocks("Look")[0]).splitlines()[:4]
    assert json.loads(status)["threads"][0]["buffered_user_messages"] == 3
    assert len(json.loads(memories)["memories"]) == 1
    assert "command_id" in json.loads(flush)
    assert json.loads(ready) == {"status": "ready", "warnings": []}

    # The console producer's five messages are counted as those of any other.
    ben = client.get("/v1/users/ben/characters/coach").json()["threads"][0]
    assert ben["last_position"] == 5

    wait_until(lambda: client.get("/v1/users/ann/characters/coach").json()["memories"] == 2)
    (rebuild,) = blocks("Operate")
    terminal.paste(rebuild)
    terminal.paste(addresses)
    client.base_url = httpx.URL(terminal.paste('echo "$URL"').strip())
    wait_until(lambda: client.get("/v1/users/ann/characters/coach").json().get("memories") == 2)
    again = {one["id"]: one["summary"] for one in json.loads(terminal.paste(recall))["memories"]}
    assert again[answer["memories"][0]["id"]] == answer["memories"][0]["summary"]
