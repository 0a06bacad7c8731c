"""Types of identifiers. Each is a string; the type keeps them from being mixed up."""

from typing import Final, NewType

TenantId = NewType("TenantId", str)
"""Owner of executions and sessions."""
UserId = NewType("UserId", str)
"""Owner of executions and sessions within a tenant."""
KeyId = NewType("KeyId", str)
"""Public part of an access key."""
ChannelName = NewType("ChannelName", str)
"""Entrance by which a request came, or another name for it."""
API: Final = ChannelName("api")
"""The channel of Portico's own routes."""
CHANNEL_PATTERN: Final = "[a-z0-9-]{1,32}"
RequestId = NewType("RequestId", str)
"""Name of an execution that clients use, unique within a tenant."""
ExecutionId = NewType("ExecutionId", str)
"""Name of an execution that the service uses, unique everywhere."""
SessionId = NewType("SessionId", str)
"""Name of a conversation, unique within a tenant."""
TraceId = NewType("TraceId", str)
"""32 hex digits, as in W3C Trace Context."""
SpanId = NewType("SpanId", str)
"""16 hex digits, as in W3C Trace Context."""
ToolCallId = NewType("ToolCallId", str)
"""Name of a tool call, unique within one message."""
SuspensionId = NewType("SuspensionId", str)
IdempotencyKey = NewType("IdempotencyKey", str)
DocumentId = NewType("DocumentId", str)
"""Name of a document that clients store for retrieval, unique for a user of a tenant."""
GrantId = NewType("GrantId", str)
"""Name of a person's leave for later calls of a tool."""
ReplicaId = NewType("ReplicaId", str)
"""Name of one process that runs executions."""
