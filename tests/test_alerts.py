"""Alerts: what is posted, that training never waits for it, and that an address is never shown."""

import copy
import json
import logging
import pickle
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import probes
from probes.monitor.alerts import Webhook, as_fields, several, wandb_alert
from tests import small_gpt2
from tests.told import EVENT, event

SECRET = "T0/B1/xoxSECRETxox"


class Answering(BaseHTTPRequestHandler):
    """Keeps what is posted; answers as its server says."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append((self.path, dict(self.headers), json.loads(body)))
        self.server.let_go.wait(self.server.slow)
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    """A server on loopback: status and slow (seconds) say how it answers."""
    found = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    found.posted, found.status, found.slow, found.let_go = [], 200, 0.0, threading.Event()
    threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True).start()
    yield found
    found.let_go.set()
    found.shutdown()
    found.server_close()


def address(server) -> str:
    return f"http://127.0.0.1:{server.server_port}/services/{SECRET}"


def test_an_event_is_posted_as_slack_reads_it_with_the_headers(server):
    hook = Webhook(address(server), headers={"Authorization": "Bearer t"})
    hook(EVENT)
    hook.wait()
    ((path, headers, body),) = server.posted
    assert path == f"/services/{SECRET}"
    assert headers["Content-Type"] == "application/json"
    assert headers["Authorization"] == "Bearer t"
    assert body == {"text": f"*cliff of loss at step 12*\n{EVENT}"}
    assert (hook.sent, hook.lost) == (1, 0)


def test_the_payload_may_be_another(server):
    hook = Webhook(address(server), payload=as_fields)
    hook(EVENT)
    hook.wait()
    assert server.posted[0][2]["detected_at"] == 20


def test_a_monitor_posts_and_a_server_that_hangs_keeps_nobody_waiting(server):
    server.slow = 30.0
    hook = Webhook(address(server), timeout=0.3)
    monitor = probes.Monitor(small_gpt2.model(), probes=["norm"], on_event=hook)
    began = time.perf_counter()
    for step in (30, 45):
        monitor._announce(event(step))
    assert time.perf_counter() - began < 0.25
    while hook.lost < 2 and time.perf_counter() - began < 10:
        hook.wait()
    assert (hook.sent, hook.lost) == (0, 2)
    assert monitor.failure is None


def test_failures_are_not_tried_again_and_after_three_in_a_row_it_is_given_up(server, caplog):
    server.status = 500
    hook = Webhook(address(server))
    for _ in range(6):
        hook(EVENT)
        hook.wait()
    assert len(server.posted) == 3
    assert (hook.sent, hook.lost) == (0, 6)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "an alert could not be sent to 127.0.0.1 (status 500); it is not tried again",
        "an alert could not be sent to 127.0.0.1 (status 500); no more are tried",
    ]


def test_a_redirect_is_not_followed(server):
    server.status = 302
    hook = Webhook(address(server))
    hook(EVENT)
    hook.wait()
    assert [path for path, _, _ in server.posted] == [f"/services/{SECRET}"]
    assert (hook.sent, hook.lost) == (0, 1)


def test_what_waits_is_bounded(server):
    server.slow = 30.0
    hook = Webhook(address(server), timeout=5)
    for _ in range(150):
        hook(EVENT)
    assert 45 <= hook.lost <= 50  # one or two are under way


def test_the_address_is_nowhere_to_be_seen(server, caplog):
    caplog.set_level(logging.DEBUG)
    server.status = 404
    hook = Webhook(address(server), headers={"Authorization": "Bearer token123"})
    monitor = probes.Monitor(small_gpt2.model(), probes=["norm"], on_event=hook)
    monitor._announce(EVENT)
    hook.wait()
    shown = "".join((repr(hook), str(vars(hook)), caplog.text, monitor.events.to_csv(), str(monitor.table.attrs)))
    assert "127.0.0.1" in shown
    assert SECRET not in shown
    assert "token123" not in shown
    for copied in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="not pickled: its address is secret"):
            copied(hook)
    with pytest.raises(ValueError, match="begins with https") as refused:
        Webhook(f"hooks.example/{SECRET}")
    assert SECRET not in str(refused.value)


def test_wandb_is_alerted_by_the_run_that_is_going_on(monkeypatch):
    import wandb

    told = []

    class Run:
        def alert(self, **alert):
            told.append(alert)

    monkeypatch.setattr(wandb, "run", None)
    tell = wandb_alert()
    with pytest.raises(RuntimeError, match="no W&B run is going on"):
        tell(EVENT)
    monkeypatch.setattr(wandb, "run", Run())
    tell(EVENT)
    assert told == [
        {"title": "cliff of loss at step 12", "text": str(EVENT), "level": "WARN", "wait_duration": 0},
    ]


def test_of_several_listeners_each_is_told_though_one_raises():
    told = []
    with pytest.raises(ZeroDivisionError):
        several(lambda event: 1 / 0, told.append)(EVENT)
    assert told == [EVENT]
