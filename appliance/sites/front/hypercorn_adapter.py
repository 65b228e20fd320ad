"""Hypercorn with stricter parsing, other timeouts and limits: what it has no settings for is overridden here and nowhere else.

Written for Hypercorn 0.18.0, h11 0.16.0 and h2 4.4.1. `serve` puts the classes below in place of Hypercorn's own, as it has no
setting for them. For each override: what happens otherwise, the issue that it answers (numbers without a repository are of
pgjones/hypercorn; "none" means that none was open, and that it was seen in these versions), and the test that fails without it.

Connections
- A read times out between requests only. Otherwise `read_timeout` also ends clients that take longer to read a response
  without sending anything. None. `test_a_response_can_take_longer_than_the_read_timeout`
- The idle timer stops when the client has left. Otherwise the connection stays for `keep_alive_timeout`. None.
  `test_the_connection_of_a_client_that_has_left_is_closed_at_once`
- An idle connection is ended by a timer. Otherwise every request ends a task and starts another. None; it costs time only.
  `test_the_idle_timer_starts_anew_after_each_response`
- Closing takes at most `linger` seconds. Otherwise it waits forever for a client that reads nothing (with TLS since #202 until
  asyncio's own timeout). `test_a_connection_is_closed_even_if_its_client_reads_nothing`
- A stop waits for the first request of a new connection, which a proxy may have sent already. None.
  `test_a_connection_opened_before_the_stop_may_send_its_request`
- A stop waits for connections of its last moment. Otherwise their requests end in 500. None.
  `test_whoever_is_accepted_is_answered`
- Errors while closing are ignored. Otherwise they escape the connection: #261, #361.
  `test_data_after_the_end_of_a_tls_connection_is_not_an_error`

HTTP/1.1
- No upgrade to cleartext HTTP/2 (`Upgrade: h2c`, or the preface; #317): a client behind a trusted proxy
  could bypass the proxy this way, and forge the headers that the proxy is trusted for. `test_http2_is_not_spoken_in_the_clear`
- Ambiguous requests are refused, CONNECT and WebSockets too: #277, #279.
  `test_ambiguous_requests_are_refused_and_end_the_connection`, `test_websockets_are_refused_on_every_host`
- Lines of a head must end in CR LF. h11 also accepts a bare line feed (python-hyper/h11#115), which a proxy may not.
  `test_a_bare_line_feed_is_refused_however_it_arrives`
- Refusals are errors in the API's format, counted, and nothing after them is read. Otherwise they are empty. None.
  `test_nothing_after_a_refused_request_is_read`, `test_a_refused_head_of_http1_has_no_body`,
  `test_a_bad_body_after_the_start_of_the_response_is_not_an_error`
- The head of a response is sent with the first part of its body. Otherwise it is a segment of its own, and a wake-up of the
  client. None. `test_a_response_is_one_segment`, `test_the_head_of_a_response_does_not_wait_for_its_body`
- A body is passed on as it was read. Otherwise the application gets a message for each chunk, however small; chunks must not
  be mostly framing either. None. `test_small_chunks_of_a_body_are_passed_on_together`

HTTP/2
- `FrameBudget` limits frames. Otherwise only `keep_alive_max_requests` does (#146), which also ends busy clients.
  `test_floods_of_frames_end_their_connection_and_no_other`, `test_a_client_can_acknowledge_all_that_it_receives`,
  `test_a_flood_ends_its_connection_although_the_client_reads_nothing`
- Data of streams that were already answered is dropped. Otherwise it is a KeyError: #329, #312.
  `test_streams_of_http2_that_are_refused_leave_their_connection_alive`
- Bad requests are refused, CONNECT too (#277). None for the rest. `test_a_refusal_ends_its_stream_whatever_its_window`,
  `test_a_refused_head_has_no_body`, `test_a_refused_stream_can_be_reset_already`, `test_http2_makes_no_tunnels`
- WebSockets are not offered. `test_http2_offers_what_it_accepts`
- Priorities are ignored (RFC 9113 § 5.3 deprecates them). Otherwise they are kept in a tree, which fails at a thousand:
  python-hyper/priority raises TooManyStreamsError. None here.
  `test_priorities_of_streams_that_never_open_leave_room_for_requests`
- The buffers of a client that has left are closed. Otherwise its requests wait for room in them. None.
  `test_a_response_ends_when_its_http2_client_leaves`
- `Buffer` asks for more data only when little is left. Hypercorn's does whenever a little was sent, and so buffers everything
  that a slow client does not read. None. `test_a_client_that_does_not_read_is_disconnected`
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import cached_property
from typing import Any, cast

import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import h11
import hypercorn.asyncio
from hypercorn import protocol
from hypercorn.asyncio import run
from hypercorn.asyncio.tcp_server import MAX_RECV, TCPServer
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol import h2 as http2
from hypercorn.protocol.events import Body, EndBody, Request
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream

from appliance.core import ids
from appliance.core.errors import ApplianceError, HeadersTooLarge, InvalidRequest, NotSupported
from appliance.monitor import metrics
from appliance.web import App, Started, error_response

from .frames import FrameBudget
from .request_heads import check_count, check_head, check_lines, check_method, check_path, split_target, with_host

REFUSED = metrics.registry.counter(
    "gos_http_refused_total", "Requests refused by their form, and connections closed for their frames.", ("code",)
)
FRAMING = 16 << 10  # bytes of chunk framing that any body may have; beyond that, half the size of its data
GOODBYE_SECONDS = 1.0
FIRST_REQUEST_SECONDS = 3.0  # of a connection that was opened shortly before the stop
_ERRORS = {
    431: HeadersTooLarge("the head of the request is too large"),
    501: NotSupported("unsupported transfer coding; only chunked is supported"),
}
_MALFORMED = InvalidRequest("the request is not valid HTTP")


class Connection(TCPServer):
    """Applies `read_timeout` between requests only. Within a request the front limits the body and the response; before the first,
    Hypercorn's idle timer applies."""
    linger = 60.0  # seconds
    _idle_timer: asyncio.TimerHandle | None = None  # runs while the connection has no request
    @cached_property
    def _began(self) -> asyncio.Event:
        return asyncio.Event()

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated):
            if not event.idle:
                self._began.set()
            self._set_idle(event.idle)
        else:
            await super().protocol_send(event)

    def _set_idle(self, is_idle: bool) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = self.loop.call_later(self.config.keep_alive_timeout, self._end_idle) if is_idle else None

    def _end_idle(self) -> None:
        self._task_group.spawn(self._initiate_server_close)

    async def _idle_timeout(self) -> None:
        await self.context.terminated.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_REQUEST_SECONDS):
                await self._began.wait()
        if self._idle_timer is not None:
            await asyncio.shield(self._initiate_server_close())

    async def _read_data(self) -> None:
        self._set_idle(True)
        while not self.reader.at_eof():
            try:
                reading = Started(self.reader.read(MAX_RECV))
                if not reading.is_over:
                    async with asyncio.timeout(None if self._has_request() else self.config.read_timeout):
                        await reading
            except OSError:  # includes TimeoutError and SSLError
                break
            await self.protocol.handle(RawData(reading.result))
        await self.protocol.handle(Closed())
        self._set_idle(False)
        await self.idle_task.stop()  # do not keep the socket of a client that has left

    def _has_request(self) -> bool:
        active: Any = self.protocol.protocol
        return bool(active.streams) if isinstance(active, http2.H2Protocol) else active.stream is not None

    async def _close(self) -> None:
        # Closing alone waits forever for a client that reads nothing.
        abort = self.loop.call_later(self.linger, self.writer.transport.abort)
        self._set_idle(False)
        try:
            with suppress(OSError):  # a TLS error in the last bytes of a client, or a client that is unreachable
                await super()._close()
        finally:
            abort.cancel()


class Buffer(http2.StreamBuffer):
    """The send buffer of an HTTP/2 stream, which asks for more data only when little is left."""

    async def pop(self, max_length: int) -> bytes:
        data = bytes(self.buffer[:max_length])
        del self.buffer[:max_length]
        if len(self.buffer) < http2.BUFFER_LOW_WATER:
            await self._paused.set()
        if not self.buffer:
            await self._is_empty.set()
        return data


class Http1(H11Protocol):
    """HTTP/1.1 only; a refused request closes the connection."""

    _is_refused = False
    _head = b""  # of a response, not sent yet
    _received = 0  # bytes since the head of the request
    _body_size = 0  # bytes of its body

    async def handle(self, event: Event) -> None:
        if isinstance(event, RawData):
            if self._is_refused:
                return
            self._received += len(event.data)
        try:
            await super().handle(event)
        except ApplianceError as error:
            await self._refuse(error)

    async def _handle_events(self) -> None:
        """Like Hypercorn's, except that the pieces of a body that arrived together are passed on together."""
        connection: Any = self.connection
        body = bytearray()
        while True:
            if connection.their_state is h11.IDLE:
                check_lines(connection.trailing_data[0])
            if connection.they_are_waiting_for_100_continue:
                await self._send_h11_event(h11.InformationalResponse(status_code=100, headers=[]))
            try:
                event = connection.next_event()
            except h11.RemoteProtocolError as error:
                await self._refuse(_ERRORS.get(error.error_status_hint, _MALFORMED))
                return
            if isinstance(event, h11.Data):
                body += event.data
                continue
            if body:
                await self._pass_on(body)
                body = bytearray()
            if isinstance(event, h11.Request):
                await self._start(event)
            elif event is h11.PAUSED:
                await self.can_read.clear()
                await self.can_read.wait()
            elif isinstance(event, h11.EndOfMessage) and self.stream is not None:
                await self.stream.handle(EndBody(stream_id=STREAM_ID))
            else:
                return

    async def _send_h11_event(self, event: Any) -> None:
        """Keep the head of a response until the first part of its body, or until the application waits for something."""
        try:
            data = self.connection.send(event) or b""
        except h11.LocalProtocolError:
            if self.connection.their_state != h11.ERROR:
                raise
            return
        self._head += data
        if isinstance(event, h11.Response):
            asyncio.get_running_loop().call_soon(self._send_late)
        else:
            await self._send_head()

    def _send_late(self) -> None:
        if self._head and self.stream is not None:  # else the client has left
            self.task_group.spawn(self._send_head)

    async def _send_head(self) -> None:
        data, self._head = self._head, b""
        if data:
            await self.send(RawData(data=data))

    async def _maybe_recycle(self) -> None:
        await self._send_head()
        await super()._maybe_recycle()

    async def _pass_on(self, body: bytearray) -> None:
        self._body_size += len(body)
        if self._received - self._body_size > FRAMING + self._body_size // 2:
            waiting = len(self.connection.trailing_data[0])  # possibly of the next request
            if self._received - waiting - self._body_size > FRAMING + self._body_size // 2:
                raise InvalidRequest("the chunks of the body are mostly framing; send larger chunks without extensions")
        if self.stream is not None:
            await self.stream.handle(Body(stream_id=STREAM_ID, data=bytes(body)))

    async def _start(self, request: h11.Request) -> None:
        await self.send(Updated(idle=False))
        headers = list(request.headers)
        check_head(request.method, request.http_version, headers)
        target, authority = split_target(request.target)
        if authority is not None:
            headers = with_host(headers, authority)
        self._received, self._body_size = len(self.connection.trailing_data[0]), 0
        self.stream = HTTPStream(
            self.app, self.config, self.context, self.task_group, self.ssl, self.client, self.server, self.stream_send, STREAM_ID
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID, headers=headers, http_version=request.http_version.decode(),
                method=request.method.decode("ascii").upper(), raw_path=target, state=self.connection_state,
            )
        )  # fmt: skip
        self.keep_alive_requests += 1
        await self.context.mark_request()

    async def _refuse(self, error: ApplianceError) -> None:
        """Respond in the API's format, unless the response has started, and close."""
        self._is_refused = True
        REFUSED.inc(1, error.code)
        connection: Any = self.connection
        if connection.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            headers, body = _error_response(error)
            await self._send_h11_event(h11.Response(status_code=error.status, headers=[*headers, (b"connection", b"close")]))
            with suppress(h11.LocalProtocolError):  # HEAD has no body
                await self._send_h11_event(h11.Data(data=body))
                await self._send_h11_event(h11.EndOfMessage())
            await self._send_head()
        await self.send(Closed())


class Http2(http2.H2Protocol):
    """HTTP/2 over TLS (ALPN). Frames are counted, and too many end the connection with ENHANCE_YOUR_CALM."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._budget = FrameBudget()
        self._is_flooded = False
        codes = h2.settings.SettingCodes
        streams, heads = self.config.h2_max_concurrent_streams, self.config.h2_max_header_list_size
        settings = {codes.MAX_CONCURRENT_STREAMS: streams, codes.MAX_HEADER_LIST_SIZE: heads, codes.ENABLE_CONNECT_PROTOCOL: 0}
        self.connection.local_settings = h2.settings.Settings(client=False, initial_values=settings)

    async def handle(self, event: Event) -> None:
        if isinstance(event, RawData):
            if self._is_flooded:
                return
            if not self._budget.admit(event.data):
                await self._end_flood()
                return
        await super().handle(event)
        if isinstance(event, Closed):
            for buffer in self.stream_buffers.values():  # the client is gone, so stop waiting for it to read
                await buffer.close()

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        for event in events:
            if self._is_flooded:
                return
            if isinstance(event, h2.events.DataReceived) and event.stream_id not in self.streams:
                self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamReset) and not event.remote_reset and not self._budget.take_reset():
                await self._end_flood()
            else:
                await super()._handle_events([event])
        await self._flush()

    async def _flush(self) -> None:
        data = self.connection.data_to_send()
        if data:
            self._budget.credit(len(data))
            await self.send(RawData(data=data))

    async def _priority_updated(self, event: h2.events.PriorityUpdated) -> None:
        """Ignored: all streams have the same priority."""

    async def _end_flood(self) -> None:
        self._is_flooded = True
        REFUSED.inc(1, "enhance_your_calm")
        self.connection.close_connection(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
        with suppress(TimeoutError):  # a flooding client may not read anything
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._flush()
        await self.send(Closed())

    async def _create_stream(self, request: h2.events.RequestReceived) -> None:
        headers: Iterable[tuple[bytes, bytes]] = request.headers or ()
        pseudo = {name: value for name, value in headers if name.startswith(b":")}
        try:
            check_count(sum(1 for _ in headers))
            check_method(pseudo.get(b":method", b""))
            check_path(pseudo.get(b":path", b""))
        except ApplianceError as error:
            self._refuse(request.stream_id, error, has_body=pseudo.get(b":method") != b"HEAD")
        else:
            await super()._create_stream(request)

    def _refuse(self, stream: int, error: ApplianceError, *, has_body: bool) -> None:
        REFUSED.inc(1, error.code)
        headers, body = _error_response(error)
        if has_body and self._window_of(stream) < len(body):  # a client that accepts no body gets the status only
            headers, has_body = [(name, value) for name, value in headers if name != b"content-length"], False
        with suppress(h2.exceptions.ProtocolError):  # the client has left
            self.connection.send_headers(stream, [(b":status", b"%d" % error.status), *headers], end_stream=not has_body)
            if has_body:
                self.connection.send_data(stream, body, end_stream=True)

    def _window_of(self, stream: int) -> int:
        """Bytes that the client currently accepts on this stream and the connection."""
        try:
            return int(self.connection.local_flow_control_window(stream))
        except h2.exceptions.ProtocolError:
            return 0


def _error_response(error: ApplianceError) -> tuple[list[tuple[bytes, bytes]], bytes]:
    body = error_response(error, ids.new("req")).body
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"content-length", b"%d" % len(body))]
    return headers, body


async def serve(app: App, config: Config, shutdown_trigger: Callable[[], Awaitable[object]]) -> None:
    """Serve `app` with these classes until `shutdown_trigger` returns and the connections have ended."""
    tasks: set[asyncio.Task[Any]] = set()

    class Tracked(Connection):
        async def run(self) -> None:
            task = cast(asyncio.Task[Any], asyncio.current_task())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            await super().run()

    vars(run)["TCPServer"] = Tracked
    vars(protocol).update(H11Protocol=Http1, H2Protocol=Http2)
    vars(http2)["StreamBuffer"] = Buffer
    await hypercorn.asyncio.serve(cast(Any, app), config, shutdown_trigger=shutdown_trigger)
    if tasks:
        await asyncio.wait(tasks, timeout=config.graceful_timeout)
