"""The figures of the page before anything is in them: Bokeh models with names, which the app fills by those names.

No number and no word of a run is in here, so the document is the same for every page. Ids are counted from one, in the
order in which they appear: Bokeh's own go on counting from figure to figure in a process.
"""

import json
from typing import Any

FIGURES = ("map", "curves", "grid", "modes", "compare")
"""Those that every page has; small figures follow as small-0, small-1, ..."""

PINS = 8
"""Curves that can be pinned."""


def bokeh_document(small: int) -> str:
    """The JSON of all figures, `small` small ones among them, as roots in this order."""
    from bokeh.core.json_encoder import serialize_json
    from bokeh.document import Document

    document = Document(title="")
    for figure in (_map(), _curves(), _grid(), _modes(), _compare(), *(_small(n) for n in range(small))):
        document.add_root(figure)
    content = json.loads(serialize_json(document.to_json()))
    return json.dumps(_renumbered(content, {}), separators=(",", ":")).replace("<", "\\u003c")


def palettes() -> dict[str, list[str]]:
    """Colours by use: all can be told apart by the colour-blind."""
    from bokeh.palettes import Colorblind8, PuOr11, Viridis256, interp_palette

    # six that stand out on white and on black; the last two pins repeat the first colours, dashed
    pins = [Colorblind8[place] for place in (0, 5, 3, 6, 1, 4, 0, 5)]
    return {"raw": list(Viridis256), "z": list(interp_palette(PuOr11, 255))[::-1], "pins": pins}


def _renumbered(value: Any, seen: dict[str, str]) -> Any:
    if isinstance(value, dict):
        found = {key: one for key, one in value.items() if key != "id"}
        if "id" in value:
            number = seen.setdefault(value["id"], f"m{len(seen) + 1}")
            return {"id": number} | {key: _renumbered(one, seen) for key, one in found.items()}
        return {key: _renumbered(one, seen) for key, one in found.items()}
    return [_renumbered(one, seen) for one in value] if isinstance(value, list) else value


def _figure(name: str, height: int, **options: Any) -> Any:
    from bokeh.models import Range1d
    from bokeh.plotting import figure

    ranges = {f"{side}_range": Range1d(start=0, end=1, name=f"{name}-{side}") for side in "xy"}
    made = figure(
        name=name,
        height=height,
        sizing_mode="stretch_width",
        toolbar_location=None,
        tools="",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border_left=8,
        min_border_right=8,
        **ranges,
        **options,
    )
    made.grid.visible = False
    for axis, side in ((made.xaxis[0], "x"), (made.yaxis[0], "y")):
        axis.name = f"{name}-{side}axis"
        axis.axis_label_text_font_style = "normal"
        axis.major_tick_in = 0
        axis.minor_tick_line_color = None
    return made


def _source(name: str, *columns: str) -> Any:
    from bokeh.models import ColumnDataSource

    return ColumnDataSource({column: [] for column in columns}, name=name)


def _ticks(figure: Any, name: str, sides: str) -> None:
    """Ticks that the app places, with the labels it gives them."""
    from bokeh.models import FixedTicker

    for side, axis in (("x", figure.xaxis[0]), ("y", figure.yaxis[0])):
        if side in sides:
            axis.ticker = FixedTicker(ticks=[], name=f"{name}-{side}ticks")


def _image(figure: Any, name: str) -> None:
    from bokeh.models import LinearColorMapper

    mapper = LinearColorMapper(
        palette=palettes()["raw"], low=0, high=1, nan_color="rgba(0,0,0,0)", name=f"{name}-colours"
    )
    source = _source(f"{name}-cells", "image", "x", "y", "dw", "dh")
    figure.image(source=source, image="image", x="x", y="y", dw="dw", dh="dh", color_mapper=mapper)


def _bands(figure: Any, name: str) -> None:
    """Stretches of events, over the whole height."""
    figure.quad(
        source=_source(f"{name}-events", "left", "right", "bottom", "top", "colour"),
        left="left",
        right="right",
        bottom="bottom",
        top="top",
        fill_color="colour",
        fill_alpha=0.14,
        line_color=None,
        level="underlay",
    )


def _cursor(figure: Any, name: str) -> None:
    from bokeh.models import Span

    figure.add_layout(Span(location=None, dimension="height", name=f"{name}-cursor", line_width=1.5))


def _map() -> Any:
    figure = _figure("map", 420)
    _image(figure, "map")
    figure.vbar(
        source=_source("map-hatched", "x", "top", "width", "pattern", "colour", "alpha"),
        x="x",
        top="top",
        width="width",
        fill_color=None,
        line_color=None,
        hatch_pattern="pattern",
        hatch_color="colour",
        hatch_alpha="alpha",
        hatch_scale=7,
        hatch_weight=0.8,
    )
    figure.quad(
        source=_source("map-events", "left", "right", "bottom", "top", "colour"),
        left="left",
        right="right",
        bottom="bottom",
        top="top",
        fill_color="colour",
        line_color=None,
    )
    figure.text(
        source=_source("map-event-names", "x", "y", "text", "colour"),
        x="x",
        y="y",
        text="text",
        text_color="colour",
        text_align="center",
        text_baseline="bottom",
        text_font_size="12px",
        text_font_style="bold",
    )
    figure.rect(
        source=_source("map-marked", "x", "y", "width", "height", "colour"),
        x="x",
        y="y",
        width="width",
        height="height",
        fill_color=None,
        line_color="colour",
        line_width=2,
    )
    _cursor(figure, "map")
    _ticks(figure, "map", "xy")
    return figure


def _curves() -> Any:
    figure = _figure("curves", 340)
    _bands(figure, "curves")
    for number in range(PINS + 1):  # all heads, then other runs and controls
        figure.varea(
            source=_source(f"curves-band-{number}", "x", "low", "high"),
            x="x",
            y1="low",
            y2="high",
            fill_alpha=0.22,
            name=f"curves-band-glyph-{number}",
        )
    figure.multi_line(
        source=_source("curves-middles", "xs", "ys", "colour", "dash"),
        xs="xs",
        ys="ys",
        line_color="colour",
        line_dash="dash",
        line_width=1.2,
        line_alpha=0.8,
    )
    figure.multi_line(
        source=_source("curves-lines", "xs", "ys", "colour", "width", "dash"),
        xs="xs",
        ys="ys",
        line_color="colour",
        line_width="width",
        line_dash="dash",
    )
    _cursor(figure, "curves")
    _ticks(figure, "curves", "xy")
    return figure


def _grid() -> Any:
    figure = _figure("grid", 260)
    _image(figure, "grid")
    figure.text(
        source=_source("grid-numbers", "x", "y", "text", "colour"),
        x="x",
        y="y",
        text="text",
        text_color="colour",
        text_align="center",
        text_baseline="middle",
        text_font_size="12px",
    )
    figure.rect(
        source=_source("grid-marked", "x", "y", "width", "height", "colour"),
        x="x",
        y="y",
        width="width",
        height="height",
        fill_color=None,
        line_color="colour",
        line_width=2,
    )
    _ticks(figure, "grid", "xy")
    return figure


def _lines(figure: Any, name: str) -> None:
    figure.multi_line(
        source=_source(f"{name}-lines", "xs", "ys", "colour", "width", "dash"),
        xs="xs",
        ys="ys",
        line_color="colour",
        line_width="width",
        line_dash="dash",
    )
    _ticks(figure, name, "xy")


def _modes() -> Any:
    figure = _figure("modes", 280)
    _bands(figure, "modes")
    _lines(figure, "modes")
    _cursor(figure, "modes")
    return figure


def _compare() -> Any:
    figure = _figure("compare", 300)
    _bands(figure, "compare")
    _lines(figure, "compare")
    _cursor(figure, "compare")
    return figure


def _small(number: int) -> Any:
    name = f"small-{number}"
    figure = _figure(name, 220)
    _bands(figure, name)
    _lines(figure, name)
    figure.segment(
        source=_source(f"{name}-marks", "x", "y0", "y1", "colour"),
        x0="x",
        x1="x",
        y0="y0",
        y1="y1",
        line_color="colour",
        line_dash="dotted",
    )
    return figure
