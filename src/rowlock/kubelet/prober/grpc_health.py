"""One call of gRPC's health protocol (`grpc.health.v1.Health/Check`) over an open connection.

h2 provides HTTP/2; of gRPC and protobuf this needs five bytes of frame, one string and one number. The failure messages are
the kubelet's own. Imported with the first gRPC probe.
"""

import asyncio
import socket
import struct
from dataclasses import dataclass, field
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.exceptions import H2Error

_PATH = "/grpc.health.v1.Health/Check"
_STATES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_UNIMPLEMENTED = "12"
_CHUNK = 65536


@dataclass(slots=True)
class _Response:
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False

    def handle_event(self, event: Event) -> None:
        if isinstance(event, (ResponseReceived, TrailersReceived)):
            self.headers |= {_text(name): _text(value) for name, value in event.headers or ()}
        elif isinstance(event, DataReceived):
            self.body += event.data
        elif isinstance(event, (StreamEnded, StreamReset)):
            self.complete = True


async def health_failure(sock: socket.socket, authority: str, service: str, agent: str) -> str:
    """Why the service is not healthy; "" when it is serving. Raises OSError if the peer does not speak HTTP/2."""
    reader, writer = await asyncio.open_connection(sock=sock)
    try:
        response = await _send_request(reader, writer, _request_headers(authority, agent), _frame_request(service))
    except H2Error as error:
        raise OSError(f"error: health rpc probe failed: {error}") from None
    finally:
        writer.close()
    status = response.headers.get("grpc-status", "")
    if status not in ("", "0"):
        message = unquote(response.headers.get("grpc-message", "")) or f"status {status}"
        if status == _UNIMPLEMENTED:
            return f"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
        return f"error: health rpc probe failed: {message}"
    if response.headers.get(":status") != "200" or not response.headers.get("content-type", "").startswith(
        "application/grpc"
    ):
        return f"error: health rpc probe failed: no gRPC server answers there (HTTP status {response.headers.get(':status')})"
    state = _serving_status(response.body)
    return "" if state == "SERVING" else f'service unhealthy (responded with "{state}")'


async def _send_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: list[tuple[str, str]], body: bytes
) -> _Response:
    connection, response = H2Connection(H2Configuration(client_side=True, header_encoding=None)), _Response()
    connection.initiate_connection()
    connection.send_headers(1, headers)
    connection.send_data(1, body, end_stream=True)
    writer.write(connection.data_to_send())
    while not response.complete:
        data = await reader.read(_CHUNK)
        if not data:
            raise OSError("error: health rpc probe failed: EOF")
        for event in connection.receive_data(data):
            response.handle_event(event)
        writer.write(connection.data_to_send())  # settings and pings must be acknowledged
    return response


def _request_headers(authority: str, agent: str) -> list[tuple[str, str]]:
    pseudo = [(":method", "POST"), (":scheme", "http"), (":path", _PATH), (":authority", authority)]
    return [*pseudo, ("content-type", "application/grpc"), ("te", "trailers"), ("user-agent", agent)]


def _frame_request(service: str) -> bytes:
    """HealthCheckRequest{service = 1}, uncompressed."""
    name = service.encode()
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    return struct.pack(">BI", 0, len(message)) + message


def _varint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def _serving_status(body: bytes) -> str:
    """The enum in HealthCheckResponse{status = 1}; 0 is not sent."""
    message = body[5:]
    number = message[1] if len(message) > 1 and message[0] == 0x08 else 0
    return _STATES[number] if number < len(_STATES) else str(number)


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
