"""Fan-out: messages from one node to many, over more than one hop.

::

    pure     mesh_wire                              frames of the mesh
             mesh_stream                            one run of an origin: order, gaps, what is kept
             mesh_state (mesh_limits)               decisions of a node: accept, relay, ask, answer, forget
    shells   mesh (mesh_events)                     a node of the mesh, over BUS

The names below are imported lazily.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.fanout.mesh import Mesh
    from nngkit.fanout.mesh_events import MeshGap, MeshMessage, MeshNeighbour, MeshStats

__all__ = ["Mesh", "MeshGap", "MeshMessage", "MeshNeighbour", "MeshStats"]

_MODULES = {
    "mesh": ("Mesh",),
    "mesh_events": ("MeshGap", "MeshMessage", "MeshNeighbour", "MeshStats"),
}
_LAZY = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:  # with it in sight, a type checker accepts any name

    def __getattr__(name: str) -> object:
        """Import a lazy name on first use."""
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(_LAZY[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
