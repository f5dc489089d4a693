"""A collector of OpenTelemetry on loopback, which keeps the spans that it is sent, and can be made to refuse them."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Received:
    """One span as it came, its attributes as plain values."""

    def __init__(self, resource, span):
        self.resource, self.span = _plain(resource.attributes), span
        self.name, self.attributes = span.name, _plain(span.attributes)
        self.events = {each.name: _plain(each.attributes) for each in span.events}


class Collector:
    """Where to send to, and what has come.

    Attributes:
        url: its address, without a path.
        status: what it answers with.
        requests: path and headers of each, their names in small letters.
    """

    def __init__(self):
        self.status, self.requests, self.spans = 200, [], []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._came = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def until(self, is_enough, within_s=60.0):
        """Wait until what has come is enough; returns all spans."""
        with self._came:
            assert self._came.wait_for(lambda: is_enough(self), timeout=within_s), [span.name for span in self.spans]
            return list(self.spans)

    @property
    def names(self):
        return [span.name for span in self.spans]

    def _handler(collector):  # noqa: N805 - `self` is the handler's
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                request = ExportTraceServiceRequest.FromString(body)
                collector.may_answer.wait()
                with collector._came:
                    collector.requests.append((self.path, {key.lower(): value for key, value in self.headers.items()}))
                    if collector.status == 200:
                        collector.spans += _spans(request)
                    collector._came.notify_all()
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(collector.status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_arguments):
                """Nothing on stderr."""

        return Handler

    def serve(self):
        self._server.serve_forever(poll_interval=0.01)

    def close(self):
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def a_collector() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.serve)
    thread.start()
    try:
        yield collector
    finally:
        collector.close()
        thread.join()


def _spans(request):
    for of_resource in request.resource_spans:
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield Received(of_resource.resource, span)


def _plain(attributes):
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
