"""An S3 server on loopback (moto's), and a web server of the same files; both count the bytes that they send."""

import functools
import os
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

os.environ.setdefault("AWS_ACCESS_KEY_ID", "loopback")
os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "kept-secret")


REFUSED = ""
"""Requests for objects whose names begin so are answered with 403."""


class Counted:
    """How much was sent, and what was asked for."""

    def __init__(self) -> None:
        self.body_bytes = 0
        self.requests: list[tuple[str, str, str | None]] = []


@contextmanager
def s3_serving():
    """Address and counts of an S3 server, while it runs."""
    from moto.backends import get_backend
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    counted = Counted()
    backend = DomainDispatcherApplication(create_backend_app)
    s3_backends = get_backend("s3")
    for account in list(s3_backends):  # moto keeps buckets for the process, whichever server they were made on
        s3_backends[account].reset()

    def application(environ, start_response):
        counted.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("HTTP_RANGE")))
        if REFUSED and REFUSED in environ["PATH_INFO"] + environ["QUERY_STRING"]:
            start_response("403 Forbidden", [("Content-Length", "0")])
            return
        for part in backend(environ, start_response):
            if environ["REQUEST_METHOD"] == "GET":
                counted.body_bytes += len(part)
            yield part

    class Quiet(WSGIRequestHandler):
        def log(self, *_):
            pass

    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", counted
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def web_serving(folder, *, ranges: bool = True):
    """Address and counts of a web server with index pages, with ranges and ETags or without, while it runs."""
    counted = Counted()

    class Handler(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            counted.requests.append(("GET", self.path, self.headers.get("Range")))
            path = self.translate_path(self.path)
            if os.path.isdir(path):
                return super().do_GET()
            if not os.path.isfile(path):
                return self.send_error(404)
            with open(path, "rb") as file:
                content = file.read()
            etag = f'"{os.stat(path).st_mtime_ns}"'
            wanted = self.headers.get("Range") if ranges and self.headers.get("If-Range", etag) == etag else None
            first, last = 0, len(content) - 1
            if wanted:
                first, last = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
            body = content[first : last + 1]
            self.send_response(206 if wanted else 200)
            if wanted:
                self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{len(content)}")
            if ranges:
                self.send_header("ETag", etag)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            counted.body_bytes += len(body)
            return None

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_):
            """A client that hangs up is part of the tests."""

    server = Quiet(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", counted
    finally:
        server.shutdown()
        server.server_close()
