"""A hub on loopback: refs, trees and files with byte ranges, as the real one serves them; and it can misbehave."""

import hashlib
import json
import threading
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlparse

LARGE = (".safetensors", ".bin", ".pth")
"""Files that are not kept in git itself."""


def git_hash(content: bytes) -> str:
    """What git calls a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class HubServer:
    """Serves one repository. `revisions` is by name, by path, the content of the file."""

    def __init__(self, repository: str, revisions: dict[str, dict[str, bytes]]) -> None:
        self.repository, self.revisions = repository, revisions
        self.commits = {hashlib.sha1(name.encode()).hexdigest(): name for name in revisions}
        self.body_bytes = 0
        self.requests: list[tuple[str, str | None]] = []
        self.cut_after: list[int] = []
        """For each of the next range requests: send so many bytes, then cut the connection."""
        self.busy = 0
        """So many of the next requests are answered with 503."""
        self.ignores_ranges = False
        self.stopped = False
        self.lies: dict[str, object] = {}
        """Answers of the API to replace, by the last part of their path."""
        self.tamper: Callable[[BaseHTTPRequestHandler, str], bool] | None = None
        """Sees every request, with its path, first; True if it answered it."""

    def refs(self) -> dict:
        branches = [{"name": n, "ref": f"refs/heads/{n}", "targetCommit": c} for c, n in self.commits.items()]
        return {"branches": branches, "tags": [], "converts": []}

    def tree(self, commit: str) -> list:
        files = self.revisions[self.commits[commit]]
        return [
            {
                "type": "file",
                "path": path,
                "size": len(content),
                "oid": git_hash(content),
                **(
                    {"lfs": {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}}
                    if path.endswith(LARGE)
                    else {}
                ),
            }
            for path, content in files.items()
        ]


@contextmanager
def serving(server: HubServer):
    """The server's address, while it runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            path = unquote(urlparse(self.path).path).strip("/")
            if server.stopped:
                self.close_connection = True
                return None
            server.requests.append((path, self.headers.get("Range")))
            if server.tamper and server.tamper(self, path):
                return None
            if server.busy:
                server.busy -= 1
                return self.send(503, b"busy")
            if path == f"api/models/{server.repository}/refs":
                return self.send(200, json.dumps(server.lies.get("refs", server.refs())).encode(), json_=True)
            if path.startswith(f"api/models/{server.repository}/tree/"):
                answer = server.lies.get("tree", None) or server.tree(path.split("/")[-1])
                return self.send(200, json.dumps(answer).encode(), json_=True)
            prefix = f"{server.repository}/resolve/"
            if path.startswith(prefix):
                commit, _, file = path.removeprefix(prefix).partition("/")
                content = server.revisions.get(server.commits.get(commit, ""), {}).get(file)
                if content is not None:
                    return self.send_file(content, self.etag(file, content))
            return self.send(404, b"not found")

        def etag(self, file: str, content: bytes) -> str:
            if "etag" in server.lies:
                return str(server.lies["etag"])
            return f'"{hashlib.sha256(content).hexdigest() if file.endswith(LARGE) else git_hash(content)}"'

        def send(self, status: int, body: bytes, json_: bool = False, etag: str | None = None) -> None:
            self.send_response(status)
            if etag:
                self.send_header("ETag", etag)
            self.send_header("Content-Type", "application/json" if json_ else "application/octet-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            server.body_bytes += len(body)

        def send_file(self, content: bytes, etag: str) -> None:
            wanted = self.headers.get("Range")
            if wanted is None or server.ignores_ranges or self.headers.get("If-Range", etag) != etag:
                return self.send(200, content, etag=etag)
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            body = content[int(first) : int(last) + 1]
            self.send_response(206)
            self.send_header("ETag", etag)
            self.send_header("Content-Range", f"bytes {first}-{int(first) + len(body) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            cut = server.cut_after.pop(0) if server.cut_after else len(body)
            self.wfile.write(body[:cut])
            server.body_bytes += len(body[:cut])
            if cut < len(body):
                self.wfile.flush()
                self.close_connection = True
                self.connection.shutdown(2)
            return None

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_):
            """A client that hangs up is part of the tests."""

    http = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)  # asked so often to stop
    thread.start()
    server.stopped = False
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        server.stopped = True  # connections that are kept alive have threads of their own
        http.shutdown()
        http.server_close()
