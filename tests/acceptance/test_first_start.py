"""A first start on a full topic: every message is counted (design, section 3: Faust drops events)."""

import pytest

from tests.acceptance.system import Said, System


def flood(messages: int, users: int = 400) -> list[Said]:
    return [
        Said(f"u{number % users}", ("A",), f"message {number // users} of the flood")
        for number in range(messages)
    ]


@pytest.mark.parametrize("attempt", range(10))
def test_every_message_of_a_full_topic_is_counted(attempt: int) -> None:
    with System() as system:
        said = system.publish(flood(20_000))
        system.start("ledger")
        system.wait(lambda: system.heartbeat("ledger").get("lag") == 0, "the lag to be worked off", 120)
        system.wait(lambda: system.counted() == len(said), f"all of {len(said)} (start {attempt})", 30)
        system.check(said)
