"""A picture as SVG and PNG, drawn by mmdr, which needs neither a browser nor Graphviz."""

from __future__ import annotations

import json

from turnstile.core.errors import ConfigurationError
from turnstile.diagram.picture import GROUND, INK, LINES

# mmdr measures text as Helvetica, whatever the font; what a system has in its place may be wider (DejaVu Sans by a
# fifth). So text is drawn smaller than it was measured, and stays within its box everywhere.
MEASURED, DRAWN = "font-size:15px", "font-size:12px"
THEME = {
    "fontFamily": "Helvetica, Arial, Liberation Sans, DejaVu Sans Condensed, sans-serif",
    "fontSize": MEASURED.removeprefix("font-size:"),
    "edgeLabelBackground": GROUND,
    "textColor": INK,
    "lineColor": LINES["live"],
    "primaryColor": LINES["live"],
    "primaryBorderColor": LINES["live"],
}
MISSING = (
    "SVG and PNG need the extra 'diagrams': pip install 'turnstile-agent[diagrams]'; Mermaid and DOT text need nothing"
)


def svg(mermaid: str) -> str:
    """Mermaid text as SVG, on a transparent ground.

    Raises:
        ConfigurationError: The extra ``diagrams`` is not installed.
    """
    try:
        import mmdr
    except ImportError:
        raise ConfigurationError(MISSING) from None
    settings = json.dumps({"theme": "base", "look": "classic", "themeVariables": THEME})
    return mmdr.render(f"%%{{init: {settings}}}%%\n{mermaid}").svg().replace(MEASURED, DRAWN)


def png(drawn: str, scale: float) -> bytes:
    """SVG as PNG, with so many pixels for each of its own."""
    import novasvg  # type: ignore[import-untyped]  # comes with mmdr, whose own PNG it makes

    document = novasvg.Document.load_from_data(drawn)
    bitmap = document.render_to_bitmap(round(document.width * scale), -1, novasvg.Color(0, 0, 0, 0))
    return bytes(bitmap.to_png())
