"""Files made by tools for people: emitted by a tool, stored by hash, opened and linked at delivery."""

from gateway.artifacts.emit import MAX_BYTES, MAX_PER_RUN, Artifact, OutsideRun, collecting, emit_artifact, media_of
from gateway.artifacts.keep import LINK_SECONDS, RETENTION_SECONDS, ArtifactStore, NotKept, Uploads
from gateway.artifacts.links import SHORT_LENGTH, BadLink, Holder, Links, OfConversation, OfSession, cut
from gateway.artifacts.names import clean_filename

__all__ = [
    "LINK_SECONDS",
    "MAX_BYTES",
    "MAX_PER_RUN",
    "RETENTION_SECONDS",
    "SHORT_LENGTH",
    "Artifact",
    "ArtifactStore",
    "BadLink",
    "Holder",
    "Links",
    "NotKept",
    "OfConversation",
    "OfSession",
    "OutsideRun",
    "Uploads",
    "clean_filename",
    "collecting",
    "cut",
    "emit_artifact",
    "media_of",
]
