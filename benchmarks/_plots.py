"""Plots as small SVG files: text as text, one decimal, few lines."""

from __future__ import annotations

import io
import re
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def panels(count: int) -> tuple[Figure, list[Axes]]:
    """Return a figure with ``count`` panels side by side; white background, so that it is readable on dark pages."""
    # ids without random parts: the same figures give the same file
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "nngkit", "font.size": 9, "axes.titlesize": 9})
    mpl.rcParams["font.sans-serif"] = ["DejaVu Sans"]  # that it was laid out for; the reader's own sans-serif follows
    figure = Figure(figsize=(4.2 * count, 3.6), facecolor="white", layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def save(figure: Figure, path: Path) -> None:
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    text = re.sub(
        r"<!--.*?-->|<metadata>.*?</metadata>|<\?xml.*?>|<!DOCTYPE.*?>", "", drawn.getvalue(), flags=re.DOTALL
    )
    text = re.sub(r"\d+\.\d{2,}(?=[^<>]*>)", lambda number: f"{float(number[0]):.1f}", text)
    text = re.sub(r"\s+", " ", text).replace("> <", "><")
    path.write_text(re.sub(r'(?=<g id="(?!line|text))', "\n", text).strip() + "\n")
