"""Devices: what stands between two sockets and passes messages on.

::

    pure     plan        which two sockets make a device, and which way its messages go
    shell    forward     passes them on: queue, forwarder, streamer, bus and pair relays

docs/devices.md says what each passes, holds and loses. May not know: what a message means, how a command prints.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.devices.device import Device, Flow, Passed
    from nngkit.devices.kinds import KINDS, Kind

__all__ = ["KINDS", "Device", "Flow", "Kind", "Passed"]

_LATE = {
    **dict.fromkeys(("Device", "Flow", "Passed"), f"{__name__}.device"),
    **dict.fromkeys(("KINDS", "Kind"), f"{__name__}.kinds"),
}


if not TYPE_CHECKING:  # a type checker that sees it takes every name for one of ours

    def __getattr__(name: str) -> object:
        """Bring in one of the late names."""
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_LATE[name]), name)
