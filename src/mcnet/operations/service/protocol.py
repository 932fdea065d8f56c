"""HTTP/1.1 as uvicorn speaks it, with limits on the head of a request, which uvicorn has not."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD_BYTES = 65_536


class Connection(HttpToolsProtocol):
    """A connection that is closed if the head of a request is too large, or takes too long; bodies: `read_body`."""

    _late: asyncio.TimerHandle | None = None
    _in_head = True
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, error: Exception | None) -> None:
        """Wait for nothing."""
        self._head_is_there()
        super().connection_lost(error)

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End a head, and answer the request."""
        self._in_head = False
        if self._late is not None:
            self._head_is_there()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Read on; a head that does not come as a whole has a limited size and time."""
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES:
                self.send_400_response(f"The head of a request has at most {_HEAD_BYTES} bytes.")
            elif self._late is None:
                self._wait_for_head()

    def eof_received(self) -> Any:
        """Answer a client that sends no more: what it has asked for, or that its request is not complete."""
        cycle = self.cycle
        if cycle is None or cycle.response_started:
            return None
        if cycle.more_body:
            self.send_400_response("The connection ended before the body was complete; nothing was done.")
            return None
        cycle.keep_alive = False
        return True  # the connection stays open until it is answered

    def _wait_for_head(self) -> None:
        self._late = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _head_is_there(self) -> None:
        self._head_bytes = 0
        if self._late is not None:
            self._late.cancel()
            self._late = None
