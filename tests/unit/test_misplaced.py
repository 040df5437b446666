"""The watch of misplaced records: what it counts, and for how long."""

from streams.misplaced import WINDOW_SECONDS, MisplacedWatch


def test_wrong_partitions_of_the_last_hour_are_told() -> None:
    now = 1_000_000.0
    watch = MisplacedWatch("localhost:1", 1, clock=lambda: now)
    assert watch.warnings == []
    watch.take(b'{"reason": "wrong_partition"}', now - WINDOW_SECONDS + 60)
    watch.take(b'{"reason": "wrong_partition"}', now)
    for other in (b'{"reason": "invalid_json"}', b"[]", b"garbage", b"", None):
        watch.take(other, now)
    (warning,) = watch.warnings
    assert warning.startswith("2 records")
    assert "murmur2_random" in warning
    now += 120
    assert watch.warnings[0].startswith("1 records")
    now += WINDOW_SECONDS
    assert watch.warnings == []
