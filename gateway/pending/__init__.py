"""Deferred confirmation: one confirmation, one exact side effect, once."""

from gateway.pending.reading import ConfirmParser, RegexConfirmParser, ReplyParser
from gateway.tools.action import PendingAction, compute_args_digest
from gateway.tools.verbs import VERBS

__all__ = ["VERBS", "ConfirmParser", "PendingAction", "RegexConfirmParser", "ReplyParser", "compute_args_digest"]
