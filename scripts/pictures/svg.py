"""SVG for a README: a panel with its own ground, light and dark, in the colours of the project's pages.

All text has at least 16 units in a width of 720, so that it can be read on a phone, 400 pixels wide.
"""

from html import escape

STYLE = """
svg {
  --paper: #ffffff; --ink: #1d2126; --quiet: #5b6570; --rule: #d9dee3; --soft: #f4f6f8; --on: #ffffff;
  --stage0: #4a5560; --stage1: #0068b5; --stage2: #c2410c; --stage3: #0a8f6a;
  --forward: #5aa9e6; --backward: #1f5f9e; --communication: #e08a1e; --optimizer: #4f9d69; --other: #9aa5b1;
  --on-forward: #10202e; --on-backward: #ffffff; --on-communication: #10202e; --on-optimizer: #10202e;
  --on-other: #10202e;
}
@media (prefers-color-scheme: dark) {
  svg {
    --paper: #14171a; --ink: #e6e9ec; --quiet: #a9b3bc; --rule: #39424a; --soft: #20252b; --on: #101316;
    --stage0: #b4bec8; --stage1: #58b0ff; --stage2: #ff9a5c; --stage3: #3fd0a4;
    --forward: #7cc0f5; --backward: #3a7dc0; --communication: #f0a545; --optimizer: #63b981; --other: #6d7883;
  }
}
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; fill: var(--ink); }
.code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
"""

Attribute = str | float


def number(x: float) -> str:
    return f"{x:.2f}".rstrip("0").rstrip(".")


class Picture:
    """`title` is the picture's name, `description` its content in words, for a screen reader."""

    def __init__(self, title: str, description: str) -> None:
        self.width = 720
        self.title, self.description = title, description
        self.parts: list[str] = []

    def element(self, name: str, text: str | None = None, **attributes: Attribute) -> None:
        written = ""
        for key, value in attributes.items():
            text_of_value = number(value) if isinstance(value, (int, float)) else escape(value)
            written += f' {key.rstrip("_").replace("_", "-")}="{text_of_value}"'
        self.parts.append(f"<{name}{written}/>" if text is None else f"<{name}{written}>{escape(text)}</{name}>")

    def rect(
        self, x: float, y: float, width: float, height: float, fill: str, radius: float = 8, **more: Attribute
    ) -> None:
        """`fill` is the name of a colour of STYLE, or "none"."""
        self.element("rect", x=x, y=y, width=width, height=height, rx=radius, style=f"fill:{colour(fill)}", **more)

    def frame(self, x: float, y: float, width: float, height: float, stroke: str, fill: str = "none") -> None:
        self.element(
            "rect",
            x=x + 1,
            y=y + 1,
            width=width - 2,
            height=height - 2,
            rx=8,
            style=f"fill:{colour(fill)};stroke:{colour(stroke)};stroke-width:2",
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 17,
        fill: str = "ink",
        anchor: str = "start",
        bold: bool = False,
        code: bool = False,
        halo: str = "",
    ) -> None:
        """`halo` is the colour of a border around the letters, which keeps lines below them away."""
        more: dict[str, Attribute] = {"text_anchor": anchor} if anchor != "start" else {}
        if code:
            more["class_"] = "code"
        weight = ";font-weight:600" if bold else ""
        if halo:
            weight += f";stroke:{colour(halo)};stroke-width:5;paint-order:stroke"
        self.element("text", text, x=x, y=y, style=f"font-size:{number(size)}px;fill:{colour(fill)}{weight}", **more)

    def arrow(self, x0: float, x1: float, y: float) -> None:
        """From left to right."""
        self._line(f"M{number(x0)} {number(y)}H{number(x1)}m-6 -6l6 6l-6 6")

    def arrow_down(self, x: float, y0: float, y1: float) -> None:
        self._line(f"M{number(x)} {number(y0)}V{number(y1)}m-6 -6l6 6l6 -6")

    def _line(self, d: str) -> None:
        ends = "stroke-linecap:round;stroke-linejoin:round"
        self.element("path", d=d, style=f"fill:none;stroke:var(--quiet);stroke-width:2.5;{ends}")

    def svg(self, height: float) -> str:
        body = "\n".join(self.parts)
        return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{number(height)}" \
viewBox="0 0 {self.width} {number(height)}" role="img" aria-labelledby="title description">
<title id="title">{escape(self.title)}</title>
<desc id="description">{escape(self.description)}</desc>
<style>{STYLE}</style>
<rect width="{self.width}" height="{number(height)}" rx="14" style="fill:var(--paper)"/>
{body}
</svg>
"""


def text_width(text: str, size: float) -> float:
    """An upper estimate, for the widest of the usual fonts (DejaVu Sans, bold)."""
    return 0.66 * size * len(text)


def colour(name: str) -> str:
    return name if name == "none" else f"var(--{name})"
