"""What watch shows besides: the course of heads, how long it will take, rises and alarms; and a page for a browser."""

import math
import time
import urllib.error
import urllib.request

import pytest
from typer.testing import CliRunner

import probes
from checkpoints import RunWriter
from probes.__main__ import app
from probes.monitor.sinks import RunDirectory
from probes.series.online import Event
from probes.watch import Reader, ServedPage, once
from probes.watch.head_curves import HeadCurves
from tests import small_gpt2
from tests.told import measurement
from tests.watched_run import shown, write_small


def test_heads_are_shown_with_their_course_the_one_that_went_furthest_first():
    heads = HeadCurves()
    for step in (0, 10, 100):
        heads.add(step, ("", "qk", 0, 0), "effective_rank", 5.0)
        heads.add(step, ("", "qk", 1, 3), "effective_rank", 5.0 + step)
        heads.add(step, ("", "qk", 1, 3), "stable_rank", 1.0)
    first, second = heads.courses()
    assert (first.name, first.change) == ("qk 1.3", 100.0)
    assert second.name == "qk 0.0"


def test_the_heads_of_a_monitored_run_are_in_the_view(tmp_path):
    with RunWriter(tmp_path / "run", config={"max_steps": 1000}) as writer:
        sink, reader = RunDirectory(writer), Reader(tmp_path / "run")
        for step in range(0, 100, 10):
            sink.scalars(step, {"loss": 1.0})
            sink.rows(measurement(step, float(step)))
        sink.close()
        writer.flush()
        text = shown(reader.poll())
    assert "effective rank of the heads that changed most (2)" in text
    assert "ov 0.0 ▁" in text
    assert "0 at step 0 to 90 at 90" in text


def test_the_time_left_is_told_where_the_config_says_how_many_steps_there_will_be(tmp_path, monkeypatch):
    clock = iter(range(0, 10_000, 10))
    with RunWriter(tmp_path / "run", config={"max_steps": 1000}) as writer:
        reader = Reader(tmp_path / "run", measures=False)
        monkeypatch.setattr("probes.watch.run_directory.time.monotonic", lambda: next(clock))
        for step in (100, 150):  # ten seconds apart for every reading of the clock
            writer.log(step, loss=1.0)
            writer.flush()
            snapshot = reader.poll()
    steps_a_second = float(snapshot.speed.split()[0])
    assert snapshot.left == f"{(1000 - 151) / steps_a_second / 60:.0f} min left of 1000 steps"
    assert snapshot.left in shown(snapshot)


def test_the_heads_are_followed_where_they_are_measured_here(tmp_path):
    text = shown(once(write_small(tmp_path / "run", range(25))))
    assert "of the heads that changed most" in text


def test_rises_and_alarms_are_named(tmp_path):
    rows = [("cliff", "rise", 0.001), ("not finite", "none", 0.0), ("divergence", "rise", math.nan)]
    with RunWriter(tmp_path / "run") as writer:
        sink = RunDirectory(writer)
        for number, (kind, direction, p) in enumerate(rows):
            at = 10.0 * number + 5
            sink.event(
                Event(at, at, at + 2, kind, direction, 0.5, p, 1.0, metric="accuracy", detected_at=10 * number + 9)
            )
        text = shown(Reader(tmp_path / "run").poll())
    assert "cliff (rise) accuracy 5 5 to 7 9 0.001" in text
    assert "not finite accuracy 15 19" in text
    assert "divergence accuracy 25 29" in text


def test_without_a_monitor_rises_and_values_that_are_no_numbers_are_found_here(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        for step in range(200):
            writer.log(step, nll=math.nan if step > 150 else 1.0)
    text = shown(once(tmp_path / "run", measures=False))
    assert "transitions (in nll, looked for here)" in text
    assert "not finite nll 151" in text


def test_a_monitor_with_a_run_directory_is_watched_while_it_trains(tmp_path):
    """The README's loop with a place to write to."""
    with probes.Monitor(small_gpt2.model(), probes=["norm"], budget=1.0, sinks=RunDirectory(tmp_path / "run")) as it:
        for step in range(30):
            it.step(loss=3.0 - step / 30)
        it.series("loss")
        it.sinks.sinks[0].writer.flush()
        text = shown(Reader(tmp_path / "run").poll())
        assert "being written" in text
        assert "loss 2.033" in text
    assert "no writer" in shown(once(tmp_path / "run"))


# for a browser


def page_at(address: str, host: str | None = None) -> tuple[int, str, dict]:
    request = urllib.request.Request(address, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), {}


@pytest.fixture
def served(tmp_path):
    made = []

    def make(path):
        if not made:
            made.append(1)
            raise ValueError("nothing <is> there yet")
        made.append(1)
        path.write_text(f"page {len(made)}")

    page = ServedPage(make, tmp_path, interval=0.05)
    page._server.timeout = 5
    yield page
    page.stop()


def test_a_page_is_made_again_and_served_to_this_machine_alone(served):
    assert served._server.server_address[0] == "127.0.0.1"
    assert "the first page is being made" in served.answer().decode()
    served.make_once()
    assert "no page yet: ValueError: nothing &lt;is&gt; there yet" in served.answer().decode()
    served.start()
    until = time.monotonic() + 10
    while served.made < 2 and time.monotonic() < until:
        time.sleep(0.02)
    status, body, headers = page_at(served.address)
    assert (status, body[:4]) == (200, "page")
    assert int(headers["Refresh"]) >= 2
    assert page_at(served.address, host="evil.example")[0] == 403
    assert page_at(served.address + "../../etc/passwd")[0] == 404


def test_a_page_and_one_look_do_not_go_together(tmp_path):
    out = CliRunner().invoke(app, ["watch", str(tmp_path), "--once", "--html"])
    assert out.exit_code == 2
    assert "--html" in out.output
