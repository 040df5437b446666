"""What calls of models have cost: calls and tokens by task, model and day."""

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class UsageKey:
    """What is counted together; `day` is UTC's."""

    day: date
    task: str
    provider: str
    model: str


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Sums of one worker."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def plus(self, input_tokens: int, output_tokens: int) -> "UsageTotals":
        """With one call more."""
        return UsageTotals(
            self.calls + 1, self.input_tokens + input_tokens, self.output_tokens + output_tokens
        )
