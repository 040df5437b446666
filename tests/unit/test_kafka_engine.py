"""The local broker's configuration."""

import socket

import pytest

from infra.engines.kafka import _cluster_id
from infra.engines.processes import free_port


def test_no_cluster_id_looks_like_an_option() -> None:
    # One in 64 would: enough of them that a leading dash cannot hide.
    made = {_cluster_id() for _ in range(2_000)}
    assert len(made) == 2_000
    assert {len(one) for one in made} == {22}
    assert not [one for one in made if one.startswith("-")]


def test_two_listeners_never_get_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system gave the same port twice once: Kafka refused to format its storage."""
    given = iter([4_711, 4_711, 4_711, 4_712])

    class Socket(socket.socket):
        def bind(self, address: object) -> None: ...

        def getsockname(self) -> tuple[str, int]:
            return "127.0.0.1", next(given)

    monkeypatch.setattr("infra.engines.processes.socket.socket", Socket)
    first = free_port()
    assert (first, free_port(besides=first)) == (4_711, 4_712)
