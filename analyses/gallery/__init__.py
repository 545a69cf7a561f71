"""The gallery: figures of the papers beside what became of their claims, in one file for phone, desktop and paper.

`entries` gathers what was drawn and what is committed, `formulas` has what is judged, `render` makes the page of both;
the page itself is `gallery.html`, `gallery.css` and `gallery.js`.
"""
