"""Errors of a disk, as the kernel returns them: writes and syncs of files in one folder fail while a trigger exists.

``fail_writes(folder, trigger)`` is called once, before a program starts its threads. A seccomp filter sends each write
and sync of this process to another one (seccomp_unotify(2), Linux 5.5 on x86-64 and arm64), which reads the file's path
in /proc: outside the folder, or without the trigger, the call goes on in the kernel; else it returns the error that the
trigger's content names. Needs no root. What is written to memory maps is not seen.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import signal
import socket
import struct
from pathlib import Path

# write, pwrite64, writev, fsync, fdatasync, ftruncate, fallocate, pwritev, pwritev2
_CALLS = {
    "x86_64": (0xC000003E, 317, (1, 18, 20, 74, 75, 77, 285, 296, 328)),
    "aarch64": (0xC00000B7, 277, (64, 68, 66, 82, 83, 46, 47, 70, 287)),
}
_NO_NEW_PRIVILEGES, _DIE_WITH_PARENT = 38, 1  # prctl(2)
_SET_FILTER, _NEW_LISTENER = 1, 1 << 3  # seccomp(2)
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF: of 32 bits at an offset, jump if equal, return
_NOTICE = struct.Struct(
    "=QIIiIQ6Q"
)  # struct seccomp_notif: id, thread, flags; number, architecture, instruction, arguments
_ANSWER = struct.Struct("=QqiI")  # struct seccomp_notif_resp: id, value, error, flags
_RECEIVE = 3 << 30 | _NOTICE.size << 16 | ord("!") << 8
_SEND = 3 << 30 | _ANSWER.size << 16 | ord("!") << 8 | 1
_GO_ON = 1

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def unavailable() -> str | None:
    """Return why `fail_writes` cannot work here; None if it can."""
    if platform.system() != "Linux" or platform.machine() not in _CALLS:
        return "seccomp filters are tried on Linux on x86-64 and arm64"
    actions = Path("/proc/sys/kernel/seccomp/actions_avail")
    if not actions.exists() or "user_notif" not in actions.read_text().split():
        return "this kernel has no seccomp notifications (Linux 5.5)"
    return None


def die_with_parent() -> None:
    """Let this process be killed when the one that has started it ends."""
    _libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def fail_writes(folder: str, trigger: str) -> None:
    """Let writes and syncs of files in `folder` fail while the file `trigger` exists, which has the error's name."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        die_with_parent()
        os.closerange(0, theirs.fileno())
        _, (listener,), _, _ = socket.recv_fds(theirs, 1, 1)
        os.set_inheritable(listener, False)
        _answer_all(listener, os.path.realpath(folder) + "/", trigger)
        os._exit(0)
    theirs.close()
    socket.send_fds(ours, [b"."], [listener := _filtered()])
    os.close(listener)
    ours.close()


def _filtered() -> int:
    """Install the filter; return the descriptor that its notifications are read from."""
    architecture, seccomp, numbers = _CALLS[platform.machine()]
    rules = [(_LOAD, 0, 0, 4), (_EQUAL, 0, len(numbers) + 1, architecture), (_LOAD, 0, 0, 0)]
    rules += [(_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    rules += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOTIFY)]
    code = b"".join(struct.pack("=HBBI", *rule) for rule in rules)
    _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    listener = int(_libc.syscall(seccomp, _SET_FILTER, _NEW_LISTENER, ctypes.byref(_Program(len(rules), code))))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return listener


def _answer_all(listener: int, folder: str, trigger: str) -> None:
    """Answer until no process has the filter any more."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        ((_, what),) = poll.poll()
        if what & select.POLLHUP:
            return
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notice)
            id_, thread, _, _, _, _, descriptor, *_ = _NOTICE.unpack(notice)
            error = _error(f"/proc/{thread}/fd/{descriptor}", folder, trigger)
            fcntl.ioctl(listener, _SEND, _ANSWER.pack(id_, 0, -error, 0 if error else _GO_ON))
        except OSError as gone:  # the thread was killed, or its call interrupted
            if gone.errno not in (errno.ENOENT, errno.EINTR):
                raise


def _error(descriptor: str, folder: str, trigger: str) -> int:
    try:
        with open(trigger) as told:
            name = told.read()
        return int(getattr(errno, name)) if os.readlink(descriptor).startswith(folder) else 0
    except (OSError, AttributeError):  # no trigger, one that is being written, or no such descriptor
        return 0
