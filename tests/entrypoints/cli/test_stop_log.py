"""The log of a server that is stopped: connections that it has to cut are no errors."""

import json
import signal
import socket
from collections.abc import Callable

from tests.support.cli_process import Process, serving
from tests.support.http_server import request_bytes

READS_NOTHING = {"messages": [{"role": "user", "content": "[[slow:60]] Hello"}], "request_id": "slow"}
JSON = {"Content-Type": "application/json"}


def test_a_stop_with_connections_that_do_not_end_logs_no_error(start: Callable[..., Process]) -> None:
    """One client sends no body, one waits for an answer that another owner will have, one reads a stream of it."""
    with serving(start, PORTICO__SERVER__DRAIN_SECONDS="0.5", PORTICO__TELEMETRY__LOG_LEVEL="info") as portico:
        body = json.dumps(READS_NOTHING).encode()
        requests = [
            b"POST /v1/execute HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n",
            request_bytes("POST", "/v1/execute", {**JSON, "Idempotency-Key": "a"}, body),
            request_bytes("GET", "/v1/executions/slow/events", {}),
        ]
        clients = [socket.create_connection(("127.0.0.1", portico.port)) for _ in requests]
        for client, request in zip(clients, requests, strict=True):
            client.sendall(request)
            portico.wait_for_in_flight(1) if b"Idempotency-Key" in request else None
        portico.signal(signal.SIGTERM)
        code, log = portico.ended()
        for client in clients:
            client.close()
    assert code == 0
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert [line for line in lines if line["level"] in {"error", "critical"}] == []
    assert [line["event"] for line in lines if line["event"] == "connections.cut"] == ["connections.cut"]
