"""Paths of Vertex AI, which the dialects of the models that it serves share."""

from urllib.parse import quote

from portico.domain.value import value


@value
class VertexPath:
    """The place of a publisher's models. Paths are relative to the server's `/v1`."""

    project: str
    location: str
    publisher: str

    def method(self, model: str, verb: str) -> str:
        """Return the path of a method of a model."""
        place = f"/projects/{self.project}/locations/{self.location}"
        return f"{place}/publishers/{self.publisher}/models/{quote(model, safe='@')}:{verb}"

    @property
    def probe(self) -> str:
        """Return a path that answers without spending tokens."""
        return f"/publishers/{self.publisher}/models?pageSize=1"
