"""Prompts from where they are kept: files of the repository, or Langfuse in front of them (R9)."""

from infra.prompts.files import FilePrompts
from infra.prompts.langfuse import LangfuseAccess, LangfusePrompts

__all__ = ["FilePrompts", "LangfuseAccess", "LangfusePrompts"]
