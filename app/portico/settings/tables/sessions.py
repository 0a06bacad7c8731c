"""Settings of sessions."""

from pydantic import Field

from portico.settings.values import Table


class SessionSettings(Table):
    """Sessions: conversations that outlive a request."""

    compact: bool = Field(
        False,
        description="True to have turns that do not fit any more summed up by the model of the request, when 8 have "
        "come together. Requests with a `session_id` then may take one question more.",
    )
