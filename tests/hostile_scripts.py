"""What hostile servers play: by name, how they answer and what the client is to say of it.

API: (the part of the path it plays for, how it answers, what the error says). FILE: (how it answers for a file of
weights, what the error says). HARMLESS: odd answers that are to be read all the same.
"""

import gzip
import json
import re
import time
import zlib
from itertools import count

import torch
from safetensors.torch import save

REPOSITORY = "some/body"
TENSORS = {"a": torch.arange(5000.0), "b": -torch.arange(3000.0), "c": torch.ones(2000) * 7}
WEIGHTS = save(TENSORS)


def head(handler, status="200 OK", **headers):
    """The head of an answer, as it stands here: the library would correct it."""
    lines = [f"HTTP/1.1 {status}", *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items()), "", ""]
    handler.wfile.write("\r\n".join(lines).encode("latin-1"))


def body(handler, content: bytes, status="200 OK", **headers):
    head(handler, status, Content_Length=len(content), **headers)
    handler.wfile.write(content)


def hang_up(handler):
    handler.wfile.flush()
    handler.close_connection = True
    handler.connection.shutdown(2)


def only(part: str):
    """A script that plays for requests whose path has this part."""

    def narrowed(play):
        def tamper(handler, path):
            if part not in path:
                return False
            answered = play(handler)
            return answered is not False

        return tamper

    return narrowed


def drips(handler, content: bytes, pause=0.01):
    for place in range(len(content)):
        handler.wfile.write(content[place : place + 1])
        handler.wfile.flush()
        time.sleep(pause)


def answers(content, **headers):
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return lambda handler: body(handler, text, Content_Type="application/json", **headers)


def says(status, **headers):
    return lambda handler: body(handler, b"no", status, **headers)


PAGE = b"<!DOCTYPE html><html><body>Please log in</body></html>"
ENTRY = {"type": "file", "path": "x", "size": 3, "oid": "0" * 40}


def silent(handler):
    time.sleep(1.0)
    hang_up(handler)


def endless(handler):
    head(handler, Transfer_Encoding="chunked", Content_Type="application/json")
    try:
        while True:
            handler.wfile.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
    except OSError:
        handler.close_connection = True


def head_drips(handler):
    handler.connection.sendall(b"HTTP/1.1 200 OK\r\n")
    try:
        drips(handler, b"X-Slow: " + b"y" * 300, 0.02)
    except OSError:
        handler.close_connection = True


def body_drips(handler):
    head(handler, Content_Length=10**6, Content_Type="application/json")
    try:
        drips(handler, b"[" * 300)
    except OSError:
        handler.close_connection = True


def pages(entries, link):
    """A listing that always has another page."""
    number = count()

    def play(handler):
        n = next(number)
        port = handler.server.server_port
        url = f"http://127.0.0.1:{port}/api/models/{REPOSITORY}/tree/{link(n)}"
        body(handler, json.dumps(entries(n)).encode(), Link=f'<{url}>; rel="next"')

    return play


API = {
    "a captive portal for the revisions": ("/refs", answers(PAGE, X="1"), "web page"),
    "JSON that is cut off": ("/refs", answers(b'{"branches": [{"na'), "not JSON"),
    "JSON of ten thousand brackets": ("/refs", answers(b"[" * 100_000), "not JSON"),
    "bytes that are no text": ("/refs", answers(b"\xff\xfe\x00\x80" * 9), "not JSON"),
    "a list instead of a table": ("/refs", answers([1, 2]), "makes no sense"),
    "revisions without a commit": ("/refs", answers({"branches": [{"name": "step1"}], "tags": []}), "makes no sense"),
    "null for everything": ("/refs", answers(None), "makes no sense"),
    "an answer without end": ("/refs", endless, "longer than"),
    "no answer at all": ("/refs", silent, "cannot be fetched"),
    "an answer that drips": ("/refs", body_drips, "drips|cannot be fetched"),
    "a head that drips": ("/refs", head_drips, "no answer within|cannot be fetched"),
    "redirects in a circle": ("/refs", says("302 Found", Location=f"/api/models/{REPOSITORY}/refs"), "redirect"),
    "a redirect to a file of this disk": (
        "/refs",
        says("302 Found", Location="file:///etc/passwd"),
        "cannot be fetched",
    ),
    "a redirect to nowhere": ("/refs", says("302 Found", Location="http://[::bad/"), "cannot be fetched"),
    "a redirect without a place": ("/refs", says("302 Found"), "302"),
    "401": ("/refs", says("401 Unauthorized"), "401 Unauthorized; is it private"),
    "403": ("/refs", says("403 Forbidden"), "403 Forbidden"),
    "404": ("/refs", says("404 Not Found"), "404 Not Found"),
    "a server that is always busy": ("/refs", says("429 Too Many Requests", Retry_After="99999"), "429"),
    "a server that always fails": ("/refs", says("500 Internal Server Error"), "500"),
    "204": ("/refs", lambda h: head(h, "204 No Content"), "204"),
    "an unheard-of status": ("/refs", says("799 Why"), "799"),
    "escape codes in an error": ("/refs", says("403 Forbidden", X_Error_Message="\x1b[31mred"), r"\?\[31mred"),
    "packed garbage": ("/refs", answers(b"not gzip at all", Content_Encoding="gzip"), "cannot be fetched"),
    "a packed bomb": ("/refs", answers(gzip.compress(b" " * 10**7), Content_Encoding="gzip"), "longer than"),
    "no status line": ("/refs", lambda h: (h.wfile.write(b"hello\r\n\r\n"), hang_up(h)), "cannot be fetched"),
    "a length below zero": ("/refs", lambda h: head(h, Content_Length=-5), "cannot be fetched"),
    "two lengths": (
        "/refs",
        lambda h: h.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 9\r\n\r\nhello"),
        "cannot be fetched",
    ),
    "it hangs up": ("/refs", hang_up, "cannot be fetched"),
    "half of what it announces": ("/refs", lambda h: (head(h, Content_Length=99), hang_up(h)), "cannot be fetched"),
    "a listing in a circle": ("/tree/", pages(lambda n: [ENTRY], lambda n: "0" * 40), "twice|no end"),
    "empty pages for ever": ("/tree/", pages(lambda n: [], lambda n: n), "without any"),
    "the same page for ever": ("/tree/", pages(lambda n: [ENTRY], lambda n: n), "'x' twice"),
    "new pages for ever": (
        "/tree/",
        pages(lambda n: [ENTRY | {"path": str(n)}], lambda n: n),
        "no end: 20 files on 20 pages so far",
    ),
    "a file twice": ("/tree/", answers([ENTRY, ENTRY]), "'x' twice"),
    "a size below zero": ("/tree/", answers([ENTRY | {"size": -1}]), "lists -1 as its size"),
    "a size of 30 digits": ("/tree/", answers([ENTRY | {"size": 10**30}]), "as its size"),
    "a size that is a truth": ("/tree/", answers([ENTRY | {"size": True}]), "lists True as its size"),
    "a hash that is a path": ("/tree/", answers([ENTRY | {"oid": "../../up"}]), "where the hash"),
    "a large file without a hash": ("/tree/", answers([ENTRY | {"lfs": {"size": 3}}]), "makes no sense"),
    "a listing that is a number": ("/tree/", answers(7), "without any"),
    "a listing of nothing": ("/tree/", answers([]), "holds no weights"),
}


def ranged(handler, content=WEIGHTS, etag='"v1"', kind="application/octet-stream", **more):
    """An honest range of this content; the file is answered for only once it is asked for."""
    first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers["Range"]).groups())
    part = content[first : last + 1]
    headers = {"Content_Range": f"bytes {first}-{first + len(part) - 1}/{len(content)}", "ETag": etag} | more
    body(handler, part, "206 Partial Content", Content_Type=kind, **{k: v for k, v in headers.items() if v})


def changing(**by_turn):
    """Another answer at each turn, and the last of them for ever; every server begins with the first."""
    turns: dict[object, count] = {}

    def play(handler):
        turn = turns.setdefault(handler.server.server_address, count())
        for name, values in by_turn.items():
            ranged(handler, **{name: values[min(next(turn), len(values) - 1)]})

    return play


def one_byte(handler):
    first = int(handler.headers["Range"].removeprefix("bytes=").split("-")[0])
    last = int(handler.headers["Range"].split("-")[1])
    head(
        handler,
        "206 Partial Content",
        Content_Range=f"bytes {first}-{last}/{len(WEIGHTS)}",
        Content_Length=last - first + 1,
        ETag='"v1"',
    )
    handler.wfile.write(WEIGHTS[first : first + 1])
    hang_up(handler)


def stalls(handler):
    first, last = map(int, handler.headers["Range"].removeprefix("bytes=").split("-"))
    head(
        handler,
        "206 Partial Content",
        Content_Range=f"bytes {first}-{last}/{len(WEIGHTS)}",
        Content_Length=last - first + 1,
    )
    handler.wfile.write(WEIGHTS[first : first + 1])
    handler.wfile.flush()
    silent(handler)


def file_drips(handler):
    first, last = map(int, handler.headers["Range"].removeprefix("bytes=").split("-"))
    if last - first < 1000:
        return ranged(handler)
    head(
        handler,
        "206 Partial Content",
        Content_Range=f"bytes {first}-{last}/{len(WEIGHTS)}",
        Content_Length=last - first + 1,
    )
    try:
        drips(handler, WEIGHTS[first : last + 1])
    except OSError:
        handler.close_connection = True
    return None


OTHER = save({name: tensor + 1 for name, tensor in TENSORS.items()})
PACKED = zlib.compress(WEIGHTS)
MULTIPART = b"--x\r\nContent-Range: bytes 0-7/9\r\n\r\n12345678\r\n--x--"

FILE = {
    "a captive portal for a file": (says("200 OK", Content_Type="text/html; charset=utf-8"), "web page"),
    "a captive portal that knows ranges": (lambda h: ranged(h, kind="text/html"), "web page"),
    "a web page with the status of a range": (
        lambda h: body(h, PAGE, "206 Partial Content", Content_Range="bytes 0-7/99", Content_Type="text/html"),
        "web page",
    ),
    "another ETag for the second range": (changing(etag=['"v1"', '"v1"', '"v2"']), "changed on the server"),
    "another weak ETag": (changing(etag=['W/"v1"', 'W/"v2"']), "changed on the server"),
    "another date of change": (
        lambda h: ranged(h, etag=None, Last_Modified=f"Mon, 01 Jan 2024 00:00:{next(CLOCK) % 60:02d} GMT"),
        "changed on the server",
    ),
    "another hash than it listed": (lambda h: ranged(h, X_Linked_ETag=f'"{"1" * 64}"'), "says that its content has"),
    "another file of the same size, as whole": (lambda h: body(h, OTHER, ETag='"v1"'), "has the hash"),
    "another range than was asked for": (
        lambda h: body(h, WEIGHTS[:8], "206 Partial Content", Content_Range=f"bytes 8-15/{len(WEIGHTS)}"),
        "another range",
    ),
    "a range that does not say which": (lambda h: body(h, WEIGHTS[:8], "206 Partial Content"), "another range"),
    "a longer range than was asked for": (
        lambda h: body(h, WEIGHTS, "206 Partial Content", Content_Range=f"bytes 0-{len(WEIGHTS) - 1}/{len(WEIGHTS)}"),
        "another range",
    ),
    "a range of a file of another size": (
        lambda h: body(h, WEIGHTS[:8], "206 Partial Content", Content_Range="bytes 0-7/99"),
        "says that it has 99 bytes",
    ),
    "a range that ends before it begins": (
        lambda h: body(h, b"", "206 Partial Content", Content_Range=f"bytes 0--1/{len(WEIGHTS)}"),
        "another range",
    ),
    "several ranges in one": (
        lambda h: body(h, MULTIPART, "206 Partial Content", Content_Type="multipart/byteranges; boundary=x"),
        "another range",
    ),
    "packed ranges": (lambda h: ranged(h, content=PACKED, Content_Encoding="deflate"), "packed"),
    "a range it cannot give": (says("416 Range Not Satisfiable"), "416"),
    "nothing instead of a range": (lambda h: head(h, "204 No Content"), "204"),
    "not modified": (lambda h: head(h, "304 Not Modified"), "304"),
    "one byte a connection": (one_byte, r"sends less|disconnected|peer closed|cannot be fetched.*bytes came"),
    "silence in the middle": (stalls, "cannot be fetched.*bytes came"),
    "a file that drips": (file_drips, "drips.*bytes came"),
    "redirects in a circle": (lambda h: says("302 Found", Location=h.path)(h), "redirect"),
    "a redirect to a file of this disk": (says("307 Temporary Redirect", Location="file:///etc/passwd"), "be fetched"),
    "zeros instead of weights": (lambda h: ranged(h, content=bytes(len(WEIGHTS)), etag=None), "filled with zeros"),
    "a header that is not JSON": (
        lambda h: ranged(h, content=WEIGHTS[:8] + b"x" * (len(WEIGHTS) - 8), etag=None),
        "not JSON",
    ),
}
CLOCK = count()

HARMLESS = {
    "no ranges at all": lambda h: body(h, WEIGHTS, ETag='"v1"'),
    "no ETag": lambda h: ranged(h, etag=None),
    "a weak ETag": lambda h: ranged(h, etag='W/"v1"'),
    "a total that is not said": lambda h: unsaid(h),
    "every condition taken for one that failed": lambda h: (
        body(h, WEIGHTS, ETag='"v1"') if h.headers.get("If-Range") else ranged(h)
    ),
    "the first of two tries broken": lambda h: hang_up(h) if next(CLOCK) % 2 else ranged(h),
    "the first of two tries busy": lambda h: says("503 Busy", Retry_After="99999")(h) if next(CLOCK) % 2 else ranged(h),
    "more bytes than were asked for": lambda h: more(h),
}


def unsaid(handler):
    first, last = map(int, handler.headers["Range"].removeprefix("bytes=").split("-"))
    body(handler, WEIGHTS[first : last + 1], "206 Partial Content", Content_Range=f"bytes {first}-{last}/*")


def more(handler):
    first, last = map(int, handler.headers["Range"].removeprefix("bytes=").split("-"))
    head(handler, "206 Partial Content", Content_Range=f"bytes {first}-{last}/{len(WEIGHTS)}", Connection="close")
    handler.wfile.write(WEIGHTS[first : last + 1] + b"and more" * 1000)
    hang_up(handler)
