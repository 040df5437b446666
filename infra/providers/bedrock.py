"""Claude through Amazon Bedrock: as anthropic.py, with AWS credentials.

Credentials come from where AWS tools find them (environment, profile, role of the machine). None that can be used is
unauthorized.
"""

import anthropic
import boto3
from botocore.exceptions import BotoCoreError

from agents.ports import Completion, ProviderError
from infra.providers.access import ProviderAccess, ProviderNotConfigured, checked_url
from infra.providers.anthropic import ClaudeModel
from infra.providers.failures import quiet
from models.prompt import RenderedPrompt


class BedrockModel(ClaudeModel):
    """A LanguageModel."""

    async def complete(self, prompt: RenderedPrompt) -> Completion:
        try:
            return await super().complete(prompt)
        except (BotoCoreError, RuntimeError):
            # Raised while signing, before anything is sent: no credentials, or none that can be read.
            raise ProviderError("unauthorized") from None


def open_bedrock(model: str, access: ProviderAccess) -> BedrockModel:
    """Claude at Bedrock. ProviderNotConfigured: no region."""
    region = access.bedrock_region or boto3.Session().region_name
    if not region:
        raise ProviderNotConfigured("bedrock has no region: set KEEPSAKE_BEDROCK_REGION, or AWS_REGION")
    client = anthropic.AsyncAnthropicBedrock(
        aws_region=region,
        base_url=checked_url(
            access.bedrock_base_url,
            f"https://bedrock-runtime.{region}.amazonaws.com",
            "KEEPSAKE_BEDROCK_BASE_URL",
        ),
        timeout=access.timeout_seconds,
        max_retries=0,
        open_telemetry=False,
    )
    quiet("boto3", "botocore", "urllib3")
    return BedrockModel("bedrock", model, client, access)
