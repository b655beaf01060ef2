"""Picture of a directed graph in layers, as HTML and SVG. Pure: edges in, text out.

::

    graph([Edge("shop", "orders", "publishes", 12), Edge("orders", "store", "calls", 3)])

Edges go from left to right; those that close a cycle are dashed and go back. A node stands one layer to the right of
its last predecessor, and within a layer near its neighbours (the barycentre heuristic of Sugiyama). Names are HTML
above the stretched SVG, so that they keep their size; the picture scrolls sideways if it is wider than the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from graphlib import TopologicalSorter
from html import escape
from typing import Final, NamedTuple

from nngkit.spark.analytics.charts import NOTHING, shortened

SIDE: Final = 1000  # units of the SVG in each direction
ROW: Final = 34  # pixels of a node, with the space to the next one
COLUMN: Final = 150  # pixels of a layer at least: some 14 characters and an edge
BOX: Final = 0.68  # of a layer's width: the rest is for edges
SWEEPS: Final = 4  # over all layers; more change little
KINDS: Final = ("publishes", "calls", "sends", "submits")  # colours c0 to c3

STYLE: Final = (
    ".graph{position:relative;margin:0 4px}.graph svg{position:absolute;inset:0;width:100%;height:100%}"
    ".graph .node{position:absolute;transform:translateY(-50%);background:var(--paper);border:1px solid var(--rule);"
    "border-radius:6px;padding:1px 6px;font-size:12px;line-height:20px;white-space:nowrap;overflow:hidden;"
    "text-overflow:ellipsis}.edge{vector-effect:non-scaling-stroke;fill:none;opacity:.6}.back{stroke-dasharray:4 4}"
) + "".join(f".c{n}.edge{{stroke:var(--c{n})}}" for n in range(len(KINDS)))


class Edge(NamedTuple):
    """`weight`: the number of messages."""

    source: str
    target: str
    kind: str
    weight: int


def layers(edges: Sequence[Edge]) -> tuple[list[list[str]], set[tuple[str, str]]]:
    """Return the nodes by layer, in their order from top to bottom, and the edges that go back."""
    after: dict[str, list[str]] = {}
    for edge in sorted(edges, key=lambda each: (-each.weight, each.source, each.target)):
        after.setdefault(edge.source, [])
        after.setdefault(edge.target, [])
        if edge.source != edge.target and edge.target not in after[edge.source]:
            after[edge.source].append(edge.target)
    back = _cycles(after)
    back |= {(edge.source, edge.target) for edge in edges if edge.source == edge.target}
    forward = {node: [each for each in nexts if (node, each) not in back] for node, nexts in after.items()}
    before: dict[str, list[str]] = {node: [] for node in forward}
    for node, nexts in forward.items():
        for each in nexts:
            before[each].append(node)
    place = dict.fromkeys(after, 0)
    for node in TopologicalSorter(before).static_order():
        place[node] = max((place[each] + 1 for each in before[node]), default=0)
    found: list[list[str]] = [[] for _ in range(max(place.values(), default=-1) + 1)]
    for node, layer in place.items():
        found[layer].append(node)
    _arrange(found, forward, before)
    return found, back


def _cycles(after: dict[str, list[str]]) -> set[tuple[str, str]]:
    """Return the edges to a node that a depth-first search has entered and not left: without them there is no cycle."""
    back: set[tuple[str, str]] = set()
    state: dict[str, bool] = {}  # True: left
    incoming = {each for nexts in after.values() for each in nexts}
    for start in sorted(after, key=lambda node: node in incoming):  # nodes without predecessors first
        stack = [(start, iter(after[start]))] if start not in state else []
        state.setdefault(start, False)
        while stack:
            node, nexts = stack[-1]
            following = next(nexts, None)
            if following is None:
                state[node] = True
                stack.pop()
            elif following not in state:
                state[following] = False
                stack.append((following, iter(after[following])))
            elif not state[following]:
                back.add((node, following))
    return back


def _arrange(found: list[list[str]], forward: dict[str, list[str]], before: dict[str, list[str]]) -> None:
    """Order each layer by the mean height of the neighbours, alternately of those to the left and to the right."""
    for sweep in range(SWEEPS):
        near = forward if sweep % 2 else before
        height = {node: _height(at, len(layer)) for layer in found for at, node in enumerate(layer)}
        for layer in reversed(found) if sweep % 2 else found:
            means = {
                node: sum(height[each] for each in near[node]) / len(near[node]) if near[node] else height[node]
                for node in layer
            }
            layer.sort(key=lambda node, means=means: means[node])  # type: ignore[misc]
            height |= {node: _height(at, len(layer)) for at, node in enumerate(layer)}


def _height(at: int, count: int) -> float:
    return (at + 0.5) / count


def graph(edges: Sequence[Edge]) -> str:
    """Return the picture. Line widths grow with the logarithm of the number of messages."""
    if not edges:
        return NOTHING
    found, back = layers(edges)
    column = 1 / (len(found) - 1 + BOX)  # no edges to the right of the last layer
    left = {node: layer * column for layer, nodes in enumerate(found) for node in nodes}
    height = {node: _height(at, len(nodes)) for nodes in found for at, node in enumerate(nodes)}
    box = BOX * column
    kinds = [kind for kind in KINDS if any(edge.kind == kind for edge in edges)]
    key = "".join(f'<span><i class="c{KINDS.index(kind)} swatch"></i>{kind}</span>' for kind in kinds)
    paths = []
    for edge in edges:
        x0, x1 = (left[edge.source] + box) * SIDE, left[edge.target] * SIDE
        y0, y1 = height[edge.source] * SIDE, height[edge.target] * SIDE
        bend = abs(x1 - x0) / 2 if x1 > x0 else SIDE * column / 3
        kind = f"c{KINDS.index(edge.kind) if edge.kind in KINDS else 0} edge"
        kind += " back" if (edge.source, edge.target) in back else ""
        title = f"{shortened(edge.source)} {edge.kind} {shortened(edge.target)}: {edge.weight}"
        paths.append(
            f'<path class="{kind}" style="stroke-width:{1 + math.log10(max(1, edge.weight)):.1f}" '
            f'd="M{x0:.0f} {y0:.0f}C{x0 + bend:.0f} {y0:.0f} {x1 - bend:.0f} {y1:.0f} {x1:.0f} {y1:.0f}">'
            f"<title>{escape(title)}</title></path>"
        )
    names = "".join(
        f'<span class="node" title="{escape(shortened(node))}" style="left:{left[node]:.2%};top:{height[node]:.2%};'
        f'width:{box:.2%}">{escape(shortened(node))}</span>'
        for nodes in found
        for node in nodes
    )
    size = f"height:{ROW * max(map(len, found))}px;min-width:{COLUMN * len(found)}px"
    svg = f'<svg viewBox="0 0 {SIDE} {SIDE}" preserveAspectRatio="none" role="img" aria-label="dependencies">'
    return (
        f'<div class="key">{key}</div><div class="scroll" tabindex="0">'
        f'<div class="graph" style="{size}">{svg}{"".join(paths)}</svg>{names}</div></div>'
    )
