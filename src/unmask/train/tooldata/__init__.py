"""Tool-calling conversations written for unmask: a seeded generator with held-out values, phrasings and tools."""

from unmask.train.tooldata.generate import KINDS, SPLITS, TRAIN_TOOLS, UNSEEN_TOOLS, generate, generate_group
from unmask.train.tooldata.records import Conversation, Group, ToolSpec

__all__ = [
    "KINDS",
    "SPLITS",
    "TRAIN_TOOLS",
    "UNSEEN_TOOLS",
    "Conversation",
    "Group",
    "ToolSpec",
    "generate",
    "generate_group",
]
