"""Decision whether a TCP peer can be reached, from the TCP_INFO of the kernel. Pure.

::

    answers = look(answers, info, now, timeout)     # every `next_look` seconds, with `parse` of TCP_INFO
    is_gone(answers, info, timeout)                 # True: end the connection

The kernel asks the peer's kernel: by data and its retransmissions, by keepalive probes while it has nothing to send, by
window probes while the peer does not read. A kernel that can be reached acknowledges each of them, even if its program
is stopped. So a peer that has acknowledged nothing for ``timeout`` seconds cannot be reached, with three exceptions:

* A peer that does not read is asked ever more rarely, before Linux 6.15 every two minutes at last. Its silence counts
  only once QUESTIONS questions are unanswered.
* Before Linux 6.6 a receiver without memory drops data and acknowledges nothing. So while data is unacknowledged, any
  segment of the peer counts as an answer, such as its keepalive probes. While nothing is being sent, those do not
  count: they do not show that our packets reach the peer.
* A suspended machine receives no answers. So the time between two looks counts as ``longest_pause`` at most.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

TCP_INFO_SIZE: Final = 256  # bytes to ask the kernel for; Linux 6.18 has 248
_FIELDS: Final = struct.Struct("<24xI24xII76xIII")  # unacked, last_data_recv, last_ack_recv, segs_out, segs_in, notsent
_CLOSED, _CLOSE_WAIT = 7, 8  # states: it has ended, which NNG reports; the peer has closed its side
_WINDOW: Final = struct.Struct("<228xI")  # snd_wnd, from Linux 5.4
QUESTIONS: Final = 2  # without an answer, as one packet may be lost


@dataclass(frozen=True, slots=True)
class TCPInfo:
    """Part of the kernel's TCP_INFO. ``quiet``: seconds since the last acknowledgement or data of the peer."""

    quiet: float
    in_flight: int  # segments sent and not acknowledged
    unsent: int  # bytes that wait for the window
    window: int | None  # bytes that the peer can take; None before Linux 5.4
    segments_out: int
    segments_in: int
    finished: bool = False  # the peer sends no more

    @property
    def asks_by_keepalive(self) -> bool:
        """True if nothing is being sent."""
        return not self.in_flight and not self.unsent

    @property
    def waits_for_window(self) -> bool:
        """True if the peer does not read."""
        return self.window == 0 if self.in_flight else self.unsent > 0


def parse(raw: bytes) -> TCPInfo | None:
    """Return the fields of the kernel's struct; None if it is too short (before Linux 4.6), or the connection ended."""
    if len(raw) < _FIELDS.size or raw[0] == _CLOSED:
        return None
    in_flight, last_data, last_ack, segments_out, segments_in, unsent = _FIELDS.unpack_from(raw)
    window = _WINDOW.unpack_from(raw)[0] if len(raw) >= _WINDOW.size else None
    quiet, finished = min(last_data, last_ack) / 1000, raw[0] == _CLOSE_WAIT
    return TCPInfo(quiet, in_flight, unsent, window, segments_out, segments_in, finished)


@dataclass(frozen=True, slots=True)
class Answers:
    """State of one connection between two looks. ``silent``: seconds without an answer, at the last look."""

    looked: float  # time of the last look
    silent: float
    segments_out: int  # at the first look after the last answer
    segments_in: int


def longest_pause(timeout: float) -> float:
    """Return the longest pause between two looks, in seconds."""
    return 0.4 * timeout


def look(before: Answers | None, info: TCPInfo, now: float, timeout: float) -> Answers:
    """Return the state at ``now``, time.monotonic() seconds. ``before`` is None at the first look."""
    if before is None:
        return Answers(now, min(info.quiet, longest_pause(timeout)), info.segments_out, info.segments_in)
    passed = now - before.looked
    counted = min(passed, longest_pause(timeout))
    if info.quiet < passed:
        return Answers(now, min(info.quiet, counted), info.segments_out, info.segments_in)
    if info.segments_in != before.segments_in and not info.asks_by_keepalive:
        return Answers(now, 0.0, info.segments_out, info.segments_in)
    return Answers(now, before.silent + counted, before.segments_out, info.segments_in)


def next_look(answers: Answers, info: TCPInfo, timeout: float) -> float:
    """Return the seconds until the next look."""
    pause = longest_pause(timeout)
    if not info.asks_by_keepalive:
        pause /= 2  # segments that came in are counted at looks only
    left = timeout - answers.silent
    return min(left, pause) if left > 0 else pause / 4


def is_gone(answers: Answers, info: TCPInfo, timeout: float) -> bool:
    """Return True if the peer cannot be reached."""
    if answers.silent < timeout:
        return False
    return not info.waits_for_window or (info.segments_out - answers.segments_out) % (1 << 32) >= QUESTIONS
