"""Ctrl-C before a command has begun."""

import sys

from probes import interrupted


def test_an_interruption_is_a_sentence_and_an_error_stays_an_error(capsys):
    for kind in (KeyboardInterrupt, ValueError):
        try:
            raise kind("here")
        except kind as error:
            interrupted.say_stopped(kind, error, error.__traceback__)
    said = capsys.readouterr().err
    assert said.startswith("stopped before anything was done\n")
    assert "ValueError: here" in said
    assert "KeyboardInterrupt" not in said


def test_the_command_line_installs_it_before_what_takes_long():
    import probes.__main__  # noqa: F401

    source = sys.modules["probes.__main__"].__file__
    assert source is not None
    with open(source) as file:
        imports = [line for line in file if line.startswith(("import ", "from "))]
    assert imports[0].startswith("from probes.interrupted import")
