"""Plays scenarios through the public interface: publish, wait until covered, flush, wait, ask."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from tests.eval.background import Window, backgrounds
from tests.eval.scenario import Line, Probe, Scenario
from tests.eval.score import MEMORIES, ProbeScore, ScenarioScore, scenario_score, score_probe

BATCH = 1_000
PUBLISHERS = 8
POLL_SECONDS = 0.5
# Without any window covered for so long the run is given up.
STALL_SECONDS = 600.0
KEEPSAKE = Path(sys.executable).with_name("keepsake")

Tell = Callable[[str], None]


class EvalFailed(Exception):
    """The run cannot go on; the message says at what."""


@dataclass(frozen=True, slots=True)
class System:
    """A running Keepsake: where it is, and the environment that its command line needs."""

    url: str
    token: str
    environment: dict[str, str]

    def status(self) -> dict[str, Any]:
        return _keepsake(self.environment, "status", "--json")


@contextmanager
def started(tell: Tell, settings: dict[str, str]) -> Iterator[System]:
    """A Keepsake of its own, in a directory of its own, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="keepsake-eval-") as directory:
        # PostgreSQL runs as a user of its own where we are root.
        Path(directory).chmod(0o755)
        environment = {
            **os.environ,
            "KEEPSAKE_DATA_DIR": directory,
            "KEEPSAKE_HTTP_PORT": "0",
            **settings,
        }
        tell("Starting Kafka, PostgreSQL and four roles")
        try:
            _run(environment, "up", "--detach")
            status = _keepsake(environment, "status", "--json")
            token = Path(status["token_file"]).read_text().strip()
            yield System(status["url"], token, environment)
        finally:
            _run(environment, "down")


class Run:
    """One run over some scenarios, once; every scenario is a user of its own."""

    def __init__(self, system: System, tell: Tell) -> None:
        self._system = system
        self._tell = tell
        self._name = f"{int(time.time()):x}"
        self._client = httpx.AsyncClient(
            base_url=system.url,
            headers={"Authorization": f"Bearer {system.token}"},
            timeout=120,
            trust_env=False,
        )

    async def play(
        self, scenarios: Sequence[Scenario], all_scenarios: Sequence[Scenario]
    ) -> list[ScenarioScore]:
        """Score `scenarios`; background windows come from `all_scenarios`."""
        behind = backgrounds(all_scenarios)
        async with self._client:
            messages = [self._messages(s, behind[s.id]) for s in scenarios]
            self._tell(f"Publishing {sum(map(len, messages))} messages of {len(scenarios)} users")
            room = asyncio.Semaphore(PUBLISHERS)
            await asyncio.gather(*(self._publish(batch, room) for batch in messages))
            await asyncio.gather(*(self._flush(s, room) for s in scenarios))
            await self._wait_covered(scenarios, room)
            await self._wait_indexed()
            self._tell("Asking")
            scores = []
            for number, scenario in enumerate(scenarios, 1):
                scores.append(await self._ask(scenario))
                if number % 50 == 0:
                    self._tell(f"  {number} of {len(scenarios)} scenarios asked")
            return scores

    def user(self, scenario: Scenario) -> str:
        return f"eval-{self._name}-{scenario.id}"

    def _messages(self, scenario: Scenario, behind: Sequence[Window]) -> list[dict[str, Any]]:
        first = scenario.characters[0]
        lines: list[tuple[str, Line]] = [
            (f"b{number}", line) for number, window in enumerate(behind) for line in window
        ]
        lines += [("own", line) for line in scenario.messages]
        scene = len(scenario.characters) > 1
        return [
            {
                "message_id": f"{self.user(scenario)}-{number}",
                "user_id": self.user(scenario),
                "character_ids": list(scenario.characters),
                "session_id": f"{part}-{line.session}",
                "role": line.role,
                "text": line.text,
                "sent_at": line.sent_at.isoformat(),
                # A background window's character is this scenario's: only its words are borrowed.
                **(
                    {"speaker": line.speaker if part == "own" else first}
                    if scene and line.role == "assistant"
                    else {}
                ),
            }
            for number, (part, line) in enumerate(lines)
        ]

    async def _publish(self, messages: Sequence[dict[str, Any]], room: asyncio.Semaphore) -> None:
        async with room:
            for start in range(0, len(messages), BATCH):
                await self._post("/v1/messages", messages[start : start + BATCH])

    async def _flush(self, scenario: Scenario, room: asyncio.Semaphore) -> None:
        async with room:
            await self._post(f"{self._pair(scenario)}/flush", None)

    async def _wait_covered(self, scenarios: Sequence[Scenario], room: asyncio.Semaphore) -> None:
        """Until every message of every user stands in a settled window; parked ones would be an error."""
        waiting, covered, moved = list(scenarios), -1, time.monotonic()
        told = time.monotonic()
        while waiting:
            states = await asyncio.gather(*(self._thread(s, room) for s in waiting))
            if any(state["parked"] for state in states):
                raise EvalFailed("a window was parked: see `keepsake parked list`")
            total = sum(state["covered_position"] for state in states)
            waiting = [
                s
                for s, state in zip(waiting, states, strict=True)
                if state["covered_position"] < state["last_position"] or state["last_position"] == 0
            ]
            if total != covered:
                covered, moved = total, time.monotonic()
            if time.monotonic() - moved > STALL_SECONDS:
                raise EvalFailed(
                    f"{len(waiting)} users have messages that are not covered, and nothing moves"
                )
            if time.monotonic() - told > 10:
                told = time.monotonic()
                self._tell(f"  {len(scenarios) - len(waiting)} of {len(scenarios)} users covered")
            await asyncio.sleep(POLL_SECONDS)

    async def _wait_indexed(self) -> None:
        """Until the indexer has embedded what it was given."""
        while (await asyncio.to_thread(self._system.status))["roles"]["indexer"]["lag"]:  # noqa: ASYNC110
            # Another process makes it true.
            await asyncio.sleep(POLL_SECONDS)

    async def _thread(self, scenario: Scenario, room: asyncio.Semaphore) -> dict[str, Any]:
        async with room:
            answer = await self._client.get(self._pair(scenario))
        answer.raise_for_status()
        threads = [t for t in answer.json()["threads"] if set(t["character_ids"]) == set(scenario.characters)]
        return threads[0] if threads else {"covered_position": 0, "last_position": 0, "parked": 0}

    async def _ask(self, scenario: Scenario) -> ScenarioScore:
        probes = [await self._probe(scenario, probe) for probe in scenario.probes]
        answer = await self._client.get(f"{self._pair(scenario)}/memories")
        answer.raise_for_status()
        left = len(answer.json()["memories"]) if scenario.nothing_to_keep else 0
        return scenario_score(scenario, left, probes)

    async def _probe(self, scenario: Scenario, probe: Probe) -> ProbeScore:
        body = {
            "user_id": self.user(scenario),
            "character_ids": list(scenario.characters),
            "query": probe.query,
            "recent_user_messages": list(probe.recent_user_messages),
            "filters": probe.filters,
            "mode": probe.mode,
            "limit": MEMORIES,
        }
        answer = await self._post("/v1/recall", body)
        return score_probe(probe, answer["memories"], answer["degraded"])

    def _pair(self, scenario: Scenario) -> str:
        return f"/v1/users/{quote(self.user(scenario), safe='')}/characters/{quote(scenario.characters[0], safe='')}"

    async def _post(self, path: str, body: object) -> dict[str, Any]:
        answer = await self._client.post(path, json=body)
        if answer.is_error:
            raise EvalFailed(f"{path} answers {answer.status_code}: {answer.text[:300]}")
        result: dict[str, Any] = answer.json()
        return result


def _run(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [KEEPSAKE, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise EvalFailed(f"keepsake {arguments[0]} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _keepsake(environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_run(environment, *arguments))
    return found
