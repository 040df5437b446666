"""Extraction by rules, with no key and no network (R52): Korean, English, Japanese.

`OfflineExtractor` answers like any model, in JSON, and its answers go through the same checks.
The word lists are data: `words/<language>.toml`, and `words/sensitive.toml`, the published list of R6.
"""

from infra.offline_extractor.provider import OfflineExtractor

__all__ = ["OfflineExtractor"]
