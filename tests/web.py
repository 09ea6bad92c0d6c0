"""A local web server whose paths choose good or bad responses."""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rru.data import DataSet, RemoteFile
from rru.data.fetch import LIMIT

CONTENT = bytes(range(256)) * 2048  # half a megabyte: several chunks
HASH = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Respond as the path asks."""

    def do_GET(self) -> None:
        getattr(self, "answer_" + self.path.strip("/").replace("-", "_"))()

    def head(self, length: int | None) -> None:
        self.send_response(200)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def answer_whole(self) -> None:
        self.head(len(CONTENT))
        self.wfile.write(CONTENT)

    def answer_half(self) -> None:
        self.head(len(CONTENT))
        self.wfile.write(CONTENT[: len(CONTENT) // 2])

    def answer_half_without_length(self) -> None:
        self.head(None)
        self.wfile.write(CONTENT[: len(CONTENT) // 2])

    def answer_empty(self) -> None:
        self.head(0)

    def answer_changed(self) -> None:
        self.head(len(CONTENT))
        self.wfile.write(CONTENT[:-1] + b"?")

    def answer_endless(self) -> None:
        self.head(None)
        try:
            while True:
                self.wfile.write(CONTENT)
        except OSError:  # the other side has had enough
            pass

    def answer_promises_too_much(self) -> None:
        self.head(LIMIT + 1)

    def answer_silence(self) -> None:
        self.connection.recv(1)  # returns when the other side has hung up

    def answer_half_then_silence(self) -> None:
        self.answer_half()
        self.connection.recv(1)

    def answer_missing(self) -> None:
        self.send_error(404)

    def answer_elsewhere(self) -> None:
        self.send_response(302)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[str]:
    """The address of a running server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}"
        finally:
            running.shutdown()
            thread.join()


def data_set(*urls: str, size: int | None = len(CONTENT)) -> DataSet:
    """A set of one file for each URL, all of them to hold CONTENT."""
    files = tuple(RemoteFile(f"set/file{i}", url, HASH, size) for i, url in enumerate(urls))
    return DataSet("set", "A set", "bytes", "Made here.", "Free.", "Nobody.", files, {"tokens": [1, 2, 3]})
