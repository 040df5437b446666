"""The command line: help, settings, exit codes; nothing here needs an engine."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

HEAVY = ("aiokafka", "asyncpg", "fastapi", "faust", "httpx", "infra.engines", "rocksdict", "streams.settings")
COMMANDS = (
    (),
    ("up",),
    ("down",),
    ("status",),
    ("run",),
    ("provision",),
    ("settings",),
    ("publish",),
    ("recall",),
    ("context",),
    ("mcp",),
    ("tail",),
    ("engines",),
    ("engines", "up"),
    ("engines", "down"),
    ("engines", "status"),
    ("parked", "list"),
    ("parked", "show"),
    ("parked", "retry"),
    ("dead", "list"),
    ("dead", "show"),
    ("dead", "retry"),
    ("prompts", "show"),
    ("prompts", "diff"),
    ("prompts", "try"),
    ("tasks", "list"),
    ("tasks", "set"),
    ("tasks", "history"),
)


def keepsake(
    data_dir: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KEEPSAKE_")}
    return subprocess.run(
        [sys.executable, "-m", "streams.cli", *arguments],
        env={**kept, "KEEPSAKE_DATA_DIR": str(data_dir), "KEEPSAKE_HTTP_PORT": "0", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_every_command_has_help_and_help_loads_nothing_heavy() -> None:
    script = (
        "import json, sys\n"
        "from typer.testing import CliRunner\n"
        "from streams.cli.main import app\n"
        f"for command in {COMMANDS!r}:\n"
        "    result = CliRunner().invoke(app, [*command, '--help'])\n"
        "    assert result.exit_code == 0 and 'Usage' in result.output, command\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_settings_tell_value_and_source_and_mask_secrets(tmp_path: Path) -> None:
    secrets = {
        "KEEPSAKE_TOKEN": "s3cret-token",
        "KEEPSAKE_MASTER_KEYS": "s3cret-keys",
        "KEEPSAKE_DATABASE_URL": "postgresql://me:s3cret@db/x",
    }
    given = {**secrets, "KEEPSAKE_THRESHOLD": "7"}
    for form in ((), ("--json",)):
        done = keepsake(tmp_path, "settings", *form, environment=given)
        assert done.returncode == 0, done.stderr
        assert "s3cret" not in done.stdout
    report = {setting["name"]: setting for setting in json.loads(done.stdout)}
    assert (report["KEEPSAKE_THRESHOLD"]["value"], report["KEEPSAKE_THRESHOLD"]["source"]) == (7, "env")
    assert report["KEEPSAKE_PARTITIONS"]["source"] == "default"
    assert report["KEEPSAKE_DATA_DIR"]["value"] == str(tmp_path)
    assert report["KEEPSAKE_MASTER_KEYS_FILE"]["value"] is None
    assert all(report[name]["value"] == "********" for name in secrets)
    assert all(setting["meaning"] for setting in report.values())


def test_a_wrong_setting_is_named_without_its_value(tmp_path: Path) -> None:
    done = keepsake(tmp_path, "status", environment={"KEEPSAKE_PARTITIONS": "s3cret"})
    assert done.returncode == 1
    assert "KEEPSAKE_PARTITIONS" in done.stderr
    assert "s3cret" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "ledger"), "keepsake up"),
        (("provision",), "KEEPSAKE_KAFKA_BOOTSTRAP"),
        (("recall", "--user", "u", "--character", "c", "hello"), "keepsake up"),
        (("publish", "missing.jsonl"), "missing.jsonl"),
        (("parked", "list"), "KEEPSAKE_DATABASE_URL"),
        (("dead", "list"), "KEEPSAKE_KAFKA_BOOTSTRAP"),
        (("dead", "show", "nonsense"), "keepsake dead list"),
        (("dead", "retry"), "--all"),
        (("parked", "retry", "x", "--all"), "--all"),
        (("tail",), "keys"),
        (("tasks", "list"), "KEEPSAKE_DATABASE_URL"),
        (("tasks", "history", "nonsense"), "extraction, consolidation, insight"),
        (("tasks", "set", "nonsense", "openai:a"), "extraction, consolidation, insight"),
        (("tasks", "set", "extraction", "gpt-5"), "provider:model"),
        (("tasks", "set", "extraction", "openai:a", "--fallback", "openai:a"), "another model"),
    ],
)
def test_what_cannot_be_done_is_explained(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    done = keepsake(tmp_path, *arguments)
    assert done.returncode == 1, done.stdout
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_engines_that_are_set_are_not_started(tmp_path: Path) -> None:
    places = {
        "KEEPSAKE_KAFKA_BOOTSTRAP": "kafka:9092",
        "KEEPSAKE_DATABASE_URL": "postgresql://me:s3cret@db/x",
    }
    done = keepsake(tmp_path, "engines", "up", environment=places)
    assert done.returncode == 1
    assert "nothing to start" in done.stderr
    shown = json.loads(keepsake(tmp_path, "engines", "status", "--json", environment=places).stdout)
    assert shown == {"kafka": "kafka:9092", "database": "postgresql://me:***@db/x", "engines": {}}


def test_the_status_of_nothing(tmp_path: Path) -> None:
    done = keepsake(tmp_path, "status", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "url": None,
        "token_file": str(tmp_path / "token"),
        "kafka": None,
        "database": None,
        "data_dir": str(tmp_path),
        "engines": {"kafka": {"pid": None}, "postgres": {"pid": None}},
        "roles": {
            role: {"pid": None, "state": "stopped", "restarts": 0, "lag": None}
            for role in ("ledger", "extractor", "indexer", "recall")
        },
    }
    assert keepsake(tmp_path, "down").returncode == 0
    assert list(tmp_path.iterdir()) == []


TALK = (
    {"role": "user", "text": "나 지난달에 부산으로 이사했어"},
    {"role": "assistant", "text": "바다 보이겠다"},
    {"role": "user", "text": "응 회사도 해운대에 있어"},
)


def talk_file(directory: Path, **change: object) -> Path:
    """A conversation of one window, as `keepsake publish` takes it."""
    path = directory / "talk.jsonl"
    path.write_text(
        "".join(
            json.dumps(
                {
                    "message_id": f"m{number}",
                    "user_id": "u",
                    "character_ids": ["mina"],
                    "session_id": "s",
                    "sent_at": "2026-03-03T21:00:00+09:00",
                    **line,
                    **(change if number == len(TALK) - 1 else {}),
                },
                ensure_ascii=False,
            )
            + "\n"
            for number, line in enumerate(TALK)
        )
    )
    return path


def test_a_prompt_is_shown_with_its_version(tmp_path: Path) -> None:
    shown = json.loads(keepsake(tmp_path, "prompts", "show", "--json").stdout)
    assert shown["name"] == "pipeline/memory-summarize"
    assert "=== user ===" in shown["text"]
    assert len(shown["version"]) == 12
    refused = keepsake(tmp_path, "prompts", "show", "../secret")
    assert (refused.returncode, "no prompt" in refused.stderr) == (1, True)


def test_a_conversation_is_tried_without_a_model_and_offline(tmp_path: Path) -> None:
    path = talk_file(tmp_path)
    rendered = keepsake(tmp_path, "prompts", "try", str(path))
    assert rendered.returncode == 0, rendered.stderr
    assert "부산으로 이사했어" in rendered.stdout
    found = json.loads(keepsake(tmp_path, "prompts", "try", str(path), "--model", "offline", "--json").stdout)
    assert "부산" in found["memory"]["content"]["summary"]
    assert (found["problem"], found["dropped"]) == (None, {})


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ({"user_id": "another"}, (), "2 threads"),
        ({"role": "nobody"}, (), "line 3"),
        ({}, ("--model", "gemini"), "provider:model"),
        ({}, ("--model", "gemini:gemini-2.5-flash"), "GEMINI_API_KEY"),
        ({}, ("--model", "nobody:x"), "provider:model"),
        ({}, ("--name", "none"), "no prompt"),
    ],
)
def test_what_cannot_be_tried_says_why(
    tmp_path: Path, change: dict[str, object], options: tuple[str, ...], said: str
) -> None:
    refused = keepsake(
        tmp_path,
        "prompts",
        "try",
        str(talk_file(tmp_path, **change)),
        *options,
        environment={"GEMINI_API_KEY": ""},
    )
    assert (refused.returncode, said in refused.stderr) == (1, True), refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"SENTRY_DSN": "secret"}, "- SENTRY_DSN: must be a DSN"),
        ({"KEEPSAKE_PROFILES": "{secret"}, "- KEEPSAKE_PROFILES: must be JSON"),
        (
            {"KEEPSAKE_CHARACTER_PROFILES": '{"kim": "trainer"}'},
            "- KEEPSAKE_CHARACTER_PROFILES names trainer",
        ),
        ({"KEEPSAKE_BREAKER_FAILURES": "0"}, "- KEEPSAKE_BREAKER_FAILURES: Input should be"),
    ],
)
def test_wrong_settings_are_named_and_not_repeated(
    tmp_path: Path, environment: dict[str, str], told: str
) -> None:
    result = keepsake(tmp_path, "settings", environment=environment)
    assert result.returncode == 1
    assert told in result.stderr
    assert "secret" not in result.stderr
    assert "Traceback" not in result.stderr


def test_profiles_are_shown_as_the_environment_takes_them(tmp_path: Path) -> None:
    shown = {one["name"]: one["value"] for one in json.loads(keepsake(tmp_path, "settings", "--json").stdout)}
    again = keepsake(
        tmp_path, "settings", "--json", environment={"KEEPSAKE_PROFILES": shown["KEEPSAKE_PROFILES"]}
    )
    assert {one["name"]: one["value"] for one in json.loads(again.stdout)} == shown
