"""A bus over several hops: each node relays, repairs gaps and drops duplicates.

::

    pure    wire            frames: data in a binary form that every hop keeps, digests and asks in CBOR
            stream          one run of an origin: order, gaps, what is kept and what neighbours claim to have
            state (limits)  decisions of a node: accept, relay, ask, answer, forget
    shells  mesh (values)   a node of the mesh, over BUS

A cluster's nodes stand on the pure part. The names below are imported lazily.
"""

from nngkit.lazy import lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.mesh.mesh import Mesh
    from nngkit.mesh.values import MeshGap, MeshMessage, MeshNeighbour, MeshStats

__all__ = ["Mesh", "MeshGap", "MeshMessage", "MeshNeighbour", "MeshStats"]

if not TYPE_CHECKING:  # with it in sight, a type checker accepts any name
    __getattr__, __dir__ = lazily(__name__, {"mesh": "Mesh", "values": "MeshGap MeshMessage MeshNeighbour MeshStats"})
