"""Fixtures of all tests: engines are started once a session, only where a test asks for them."""

from collections.abc import Iterator

import pytest

from tests.engines import LocalEngines


@pytest.fixture(scope="session")
def engines() -> Iterator[LocalEngines]:
    """Kafka and PostgreSQL, shared by all tests of the session: use topics or rows of your own."""
    with LocalEngines() as running:
        yield running


@pytest.fixture(scope="session")
def database() -> Iterator[LocalEngines]:
    """PostgreSQL alone."""
    with LocalEngines(kafka=False) as running:
        yield running
