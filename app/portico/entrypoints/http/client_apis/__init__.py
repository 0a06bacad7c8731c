"""Client APIs: chat completions, Responses and Messages, as the clients of OpenAI and Anthropic speak them.

Theory of operation

1. A request is decoded into a `SystemRequest` and what its answer has to show (`DecodedRequest`). From there on it is
   an execution as any other.
2. Its response, or its events as they come, become a `Turn` and its changes (`turn.py`): the texts of the model's
   turns, the calls that ran here, and the calls that the client has to run.
3. A turn is encoded, as one body or as frames. An API is the table of these functions (`api.py`).

Everything here is a pure function over values, or a fold over events; nothing reads, waits or asks the service. What
these modules share with the dialects of providers are the domain's types only: a dialect follows its provider, a client
API its clients.
"""
