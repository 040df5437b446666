"""docker-compose.yml against the compose schema, our settings, and the local engine that it stands for."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from infra.prompts import FilePrompts
from infra.providers import ProviderAccess
from models.assignments import OFFLINE_MODEL
from streams.assignments import default_assignments
from streams.embedder import embedding_model
from streams.prompts import open_prompts
from streams.provider_access import provider_access
from streams.settings import Settings
from streams.settings_report import settings_report

ROOT = Path(__file__).parents[2]
ROLES = ("ledger", "extractor", "indexer", "recall")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    assert isinstance(loaded, dict)
    return loaded


@pytest.fixture(scope="module")
def schema() -> Draft7Validator:
    return Draft7Validator(json.loads((ROOT / "tests/data/compose-spec.json").read_text()))


def test_it_follows_the_compose_schema(compose: dict[str, Any], schema: Draft7Validator) -> None:
    assert [f"{error.json_path}: {error.message}" for error in schema.iter_errors(compose)] == []


def test_the_schema_sees_a_misspelt_key(compose: dict[str, Any], schema: Draft7Validator) -> None:
    broken = copy.deepcopy(compose)
    broken["services"]["kafka"]["heathcheck"] = broken["services"]["kafka"].pop("healthcheck")
    assert list(schema.iter_errors(broken))


def test_every_role_runs_after_provision_and_tells_its_health(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {"kafka", "postgres", "provision", *ROLES}
    for role in ROLES:
        assert services[role]["command"] == ["run", role]
        assert services[role]["depends_on"] == {"provision": {"condition": "service_completed_successfully"}}
        assert services[role]["healthcheck"]["test"]
        assert services[role]["volumes"] == [f"{role}:{services[role]['volumes'][0].partition(':')[2]}"]
    assert set(services["provision"]["depends_on"]) == {"kafka", "postgres"}


def test_what_is_named_is_declared(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert set(service.get("secrets", ())) <= set(compose["secrets"])
        assert {volume.partition(":")[0] for volume in service.get("volumes", ())} <= set(compose["volumes"])
        assert set(service.get("depends_on", {})) <= set(compose["services"])


def test_every_setting_exists(compose: dict[str, Any]) -> None:
    known = {setting.name for setting in settings_report(Settings())}
    for role in ("provision", *ROLES):
        assert set(compose["services"][role]["environment"]) <= known


def test_left_out_settings_of_models_count_as_unset(
    compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`${NAME:-}` gives an empty value: it must neither be refused nor taken for one."""
    models = set(compose["x-models"])
    for role in ("extractor", "indexer", "recall"):
        assert models <= set(compose["services"][role]["environment"])
    for name, value in compose["services"]["extractor"]["environment"].items():
        if left_out := re.fullmatch(r"\$\{\w+:-(.*)\}", value):
            monkeypatch.setenv(name, left_out[1])
    assert {one.model for one in default_assignments(Settings()).values()} == {OFFLINE_MODEL}
    assert embedding_model(Settings())[0] == "offline"
    assert provider_access(Settings()) == ProviderAccess()
    assert isinstance(open_prompts(Settings()), FilePrompts)
    deadline = Settings.model_fields["extraction_deadline_seconds"].default
    assert Settings().extraction_deadline_seconds == deadline


def test_images_are_official_and_pinned(compose: dict[str, Any]) -> None:
    assert compose["services"]["kafka"]["image"].startswith("apache/kafka:4.")
    assert compose["services"]["postgres"]["image"] == "pgvector/pgvector:pg18"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false"),
        ("KAFKA_TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS", "1000"),
        ("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0"),
        ("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "1"),
        ("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1"),
    ],
)
def test_the_broker_is_set_as_the_local_one(compose: dict[str, Any], variable: str, value: str) -> None:
    assert compose["services"]["kafka"]["environment"][variable] == value


def test_the_image_holds_every_room_and_no_root_process() -> None:
    lines = (ROOT / "infra/Containerfile").read_text().splitlines()
    for room in ("agents", "infra", "models", "sql", "streams"):
        assert f"COPY {room} {room}" in lines
    assert "USER keepsake" in lines
    assert any("--require-hashes" in line for line in lines)
