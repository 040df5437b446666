"""A circuit breaker: after some failures in a row nothing is tried for a while, then one call at a time (R28)."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Suspended(Exception):
    """Not tried: the last calls failed."""


class CircuitBreaker:
    """Opens at `failures` in a row. After `seconds` a single call is let through: it closes the breaker, or opens it
    again. (The libraries for it let all waiting calls through at once, and grow one exception's trace for ever.)"""

    def __init__(
        self,
        failures: int,
        seconds: float,
        *,
        excused: Callable[[BaseException], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`excused`: which errors say nothing of whether the next call would fail."""
        self._failures = failures
        self._excused = excused
        self._seconds = seconds
        self._clock = clock
        self._failed = 0
        self._closed_from = 0.0
        self._trying = False

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around one call; what leaves it (a cancellation by a deadline too) is a failure. Suspended: not now."""
        trial = self._failed >= self._failures
        if trial and (self._trying or self._clock() < self._closed_from):
            raise Suspended
        self._trying = trial
        try:
            yield
        except BaseException as error:
            if self._excused(error):
                raise
            self._failed += 1
            self._closed_from = self._clock() + self._seconds
            raise
        else:
            self._failed = 0
        finally:
            if trial:
                self._trying = False
