"""Devices: forwarding of messages between two sockets.

::

    await forward(front, back)                      # until one of them is closed
    async with forward(front, back) as device: ...  # while the block runs

    pure     kinds       which two sockets make a device, and in which directions it forwards
             examining   tap, filter, transform, rate, bodies forwarded once
             rings       rings of devices, by their addresses
    shell    device      forwarding: queue, survey, forwarder, streamer, bus and pair relays

docs/devices.md has the guarantees and losses of each. Independent of the content of messages and of commands.
"""

from nngkit.lazy import lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.devices.device import Device, Forwarding, PeerStats, forward
    from nngkit.devices.examining import DirectionStats, TappedMessage
    from nngkit.devices.kinds import KINDS, Kind

__all__ = ["KINDS", "Device", "DirectionStats", "Forwarding", "Kind", "PeerStats", "TappedMessage", "forward"]

if not TYPE_CHECKING:  # with it in sight, a type checker accepts any name
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "device": "Device Forwarding PeerStats forward",
            "examining": "DirectionStats TappedMessage",
            "kinds": "KINDS Kind",
        },
    )
