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
    followed = _followed("modes", 280), _followed("compare", 300)
    for figure in (_map(), _curves(), _grid(), *followed, *map(_small, range(small))):
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


def _glyph(draw: Any, source_name: str, properties: str, **style: Any) -> None:
    """A glyph with an empty source of that name: one column for each of the properties, called as they are.

    A property may be drawn from a column of another name: "fill_color=colour".
    """
    from bokeh.models import ColumnDataSource

    columns = {given.split("=")[0]: given.split("=")[-1] for given in properties.split()}
    source = ColumnDataSource({column: [] for column in columns.values()}, name=source_name)
    draw(source=source, **columns, **style)


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
    _glyph(figure.image, f"{name}-cells", "image x y dw dh", color_mapper=mapper)


def _bands(figure: Any, name: str) -> None:
    """Stretches of events, over the whole height."""
    places = "left right bottom top fill_color=colour"
    _glyph(figure.quad, f"{name}-events", places, fill_alpha=0.14, line_color=None, level="underlay")


def _cursor(figure: Any, name: str) -> None:
    from bokeh.models import Span

    figure.add_layout(Span(location=None, dimension="height", name=f"{name}-cursor", line_width=1.5))


def _words(figure: Any, name: str, **style: Any) -> None:
    _glyph(figure.text, name, "x y text text_color=colour", text_align="center", text_font_size="12px", **style)


def _frames(figure: Any, name: str) -> None:
    _glyph(figure.rect, name, "x y width height line_color=colour", fill_color=None, line_width=2)


def _map() -> Any:
    figure = _figure("map", 420)
    _image(figure, "map")
    hatches = "x top width hatch_pattern=pattern hatch_color=colour hatch_alpha=alpha"
    _glyph(figure.vbar, "map-hatched", hatches, fill_color=None, line_color=None, hatch_scale=7, hatch_weight=0.8)
    _glyph(figure.quad, "map-events", "left right bottom top fill_color=colour", line_color=None)
    _words(figure, "map-event-names", text_baseline="bottom", text_font_style="bold")
    _frames(figure, "map-marked")
    _cursor(figure, "map")
    _ticks(figure, "map", "xy")
    return figure


def _curves() -> Any:
    figure = _figure("curves", 340)
    _bands(figure, "curves")
    for number in range(PINS + 1):  # all heads, then other runs and controls
        name = f"curves-band-glyph-{number}"
        _glyph(figure.varea, f"curves-band-{number}", "x y1=low y2=high", fill_alpha=0.22, name=name)
    middles = "xs ys line_color=colour line_dash=dash"
    _glyph(figure.multi_line, "curves-middles", middles, line_width=1.2, line_alpha=0.8)
    _lines(figure, "curves")
    _cursor(figure, "curves")
    return figure


def _grid() -> Any:
    figure = _figure("grid", 260)
    _image(figure, "grid")
    _words(figure, "grid-numbers", text_baseline="middle")
    _frames(figure, "grid-marked")
    _ticks(figure, "grid", "xy")
    return figure


def _lines(figure: Any, name: str) -> None:
    _glyph(figure.multi_line, f"{name}-lines", "xs ys line_color=colour line_width=width line_dash=dash")
    _ticks(figure, name, "xy")


def _followed(name: str, height: int) -> Any:
    """Lines over the bands of events, with the cursor."""
    figure = _figure(name, height)
    _bands(figure, name)
    _lines(figure, name)
    _cursor(figure, name)
    return figure


def _small(number: int) -> Any:
    name = f"small-{number}"
    figure = _figure(name, 220)
    _bands(figure, name)
    _lines(figure, name)
    _glyph(figure.segment, f"{name}-marks", "x0=x x1=x y0 y1 line_color=colour", line_dash="dotted")
    return figure
