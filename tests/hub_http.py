"""An HTTP server on 127.0.0.1 that records its requests and can be told to fail, for `hub_server`."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from typing_extensions import Self

Damage = Literal["cut", "short", "corrupt", "drop"]


class HttpError(Exception):
    """An answer that is no success; the Hub tells its kind by a code."""

    def __init__(self, status: int, message: str, code: str = "", headers: Mapping[str, str] = {}, **body: Any):
        super().__init__(message)
        self.status, self.headers, self.body = status, {"X-Error-Message": message, **headers}, body
        if code:
            self.headers["X-Error-Code"] = code

    def response(self) -> Response:
        return answer({"error": str(self), **self.body}, self.status, **self.headers)


@dataclass(frozen=True)
class Request:
    """What a route is called with."""

    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes
    user: str | None = None
    role: str | None = None

    def json(self) -> dict[str, Any]:
        try:
            content = json.loads(self.body)
        except ValueError as error:
            raise HttpError(400, f"Invalid JSON: {error}") from error
        if not isinstance(content, dict):
            raise HttpError(400, "Expected an object")
        return content


class Response(NamedTuple):
    """What a route answers."""

    status: int
    body: bytes
    headers: dict[str, str]


class Record(NamedTuple):
    """One request in `HttpServer.requests`: status 0 where no answer was sent, and the size of the request's body."""

    method: str
    path: str
    status: int
    size: int


@dataclass
class Fault:
    """What goes wrong with the next requests that match."""

    method: str
    path: re.Pattern[str]
    fault: int | Damage
    times: int
    after: int
    message: str
    headers: dict[str, str]

    def strikes(self, method: str, path: str) -> bool:
        if method != self.method or not self.path.search(path) or not self.times:
            return False
        if self.after:
            self.after -= 1
            return False
        self.times -= 1
        return True


Route = Callable[..., Response]
ROUTES: list[tuple[str, re.Pattern[str], Route]] = []


def route(method: str, pattern: str) -> Callable[[Route], Route]:
    """Register a method of an `HttpServer` for the paths that match in full."""

    def register(function: Route) -> Route:
        ROUTES.append((method, re.compile(pattern), function))
        return function

    return register


def answer(content: Any, status: int = 200, **headers: str) -> Response:
    return Response(status, json.dumps(content).encode(), {"Content-Type": "application/json", **headers})


class HttpServer:
    """Answers by the methods of a subclass that `route` has registered, as long as its `with` block lives."""

    def __init__(self) -> None:
        self.requests: list[Record] = []
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"state": self}))
        self.port: int = self._server.server_port

    def __enter__(self) -> Self:
        # A short poll, as leaving the block waits for it.
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def inject(
        self,
        method: str,
        path: str,
        fault: int | Damage,
        times: int = 1,
        after: int = 0,
        message: str = "",
        headers: Mapping[str, str] = {},
    ) -> Fault:
        """Make requests of this method fail whose path, with its query, contains a match of the pattern `path`.

        A number is a status to answer with; nothing else happens then. `drop` does all that was asked for and closes
        the connection without an answer. The others damage the request's body where it has one and else the
        response's: `cut` closes the connection in the middle of it, `short` loses its second half, `corrupt` turns
        all its bits around. The fault strikes `times` times, from the match number `after` on.
        """
        self.faults.append(Fault(method, re.compile(path), fault, times, after, message, dict(headers)))
        return self.faults[-1]

    def handle(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Answer one request; each is carried out alone."""
        url = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        try:
            request = self.authenticated(Request(url.path, query, headers, body))
            for known, pattern, function in ROUTES:
                found = pattern.fullmatch(url.path)
                if found and known == method.replace("HEAD", "GET"):
                    with self.lock:
                        return function(self, request, **{k: unquote(v or "") for k, v in found.groupdict().items()})
            raise HttpError(404, "Sorry, we can't find the page you are looking for.")
        except HttpError as error:
            return error.response()

    def authenticated(self, request: Request) -> Request:
        """The request, with who sent it."""
        return request


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments: Any):
        self.connections: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        # The client keeps connections, and may meet the next server at the same port.
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that goes away, which some tests want, is no mistake of the server's.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """HTTP between the sockets and `HttpServer.handle`, with its faults."""

    state: ClassVar[HttpServer]
    protocol_version = "HTTP/1.1"
    # Headers and body leave in two writes, the second of which must not wait for the first one's acknowledgement.
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        with self.state.lock:
            struck = next((fault for fault in self.state.faults if fault.strikes(self.command, self.path)), None)
        fault = struck.fault if struck else None
        size = int(self.headers.get("Content-Length", 0))
        has_body = size > 0 or self.headers.get("Transfer-Encoding") == "chunked"
        if has_body and fault == "cut":
            return self._close(len(self.rfile.read(size // 2)))
        body = self.rfile.read(size) if size else b"".join(self._chunks()) if has_body else b""
        received = len(body)
        if struck and isinstance(fault, int):
            error = HttpError(fault, struck.message or "Injected fault", headers=struck.headers)
            return self._send(error.response(), received)
        if has_body:
            body = _damaged(body, fault)
        response = self.state.handle(self.command, self.path, self.headers, body)
        if fault == "drop" or (fault == "cut" and self.command == "HEAD"):
            return self._close(received)
        if has_body or fault is None:
            return self._send(response, received)
        if fault != "cut":
            return self._send(response._replace(body=_damaged(response.body, fault)), received)
        self.close_connection = True
        return self._send(response, received, len(response.body) // 2)

    def _close(self, received: int) -> None:
        self._record(0, received)
        self.close_connection = True

    def _record(self, status: int, received: int) -> None:
        with self.state.lock:
            self.state.requests.append(Record(self.command, self.path, status, received))

    def _send(self, response: Response, received: int, sent: int | None = None) -> None:
        # Before the answer, as the client may be done and the records be read as soon as it has come.
        self._record(response.status, received)
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value.replace("\n", " ").encode("latin-1", "replace").decode("latin-1"))
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body[:sent])

    def _chunks(self) -> Iterable[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815


def _damaged(data: bytes, fault: Damage | int | None) -> bytes:
    if fault == "short":
        return data[: len(data) // 2]
    return bytes(byte ^ 0xFF for byte in data) if fault == "corrupt" else data
