"""The google-genai client as Keepsake uses it, and its errors as ProviderError; for text and embeddings alike.

Beyond the table of failures.py: 400 with the reason API_KEY_INVALID, or a message that the key is not valid, is
unauthorized; the pause of a 429 is that of its RetryInfo detail, else of its Retry-After header.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import aiohttp
import httpx2
from google import genai
from google.genai import errors, types

from agents.ports import ProviderError
from infra.providers.access import ProviderAccess, checked_url, required_key
from infra.providers.failures import quiet, status_failure, to_seconds

OWN_URL = "https://generativelanguage.googleapis.com/"
