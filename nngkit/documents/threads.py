"""Documents for threads: the same document, whose calls are made in its loop's thread and waited for.

::

    doc = peer.open("minutes")                       # of nngkit.blocking.DocumentPeer
    doc.text("body").insert(0, "hello")
    with doc.transaction():                          # one update; the loop does nothing else until it ends
        doc.map("meta")["title"] = "Minutes"
    doc.joined(timeout=5)
    for change in doc.changes(): ...

Names, arguments, results and errors are those of `document.py` and `shared.py`; what is awaited there blocks here. Any
thread may call. Each call is atomic, and so is a transaction: other threads, and what peers send, wait for its end.
What is put into a document is made of `nngkit.documents.Text`, `Map` and `Array`, as there.

It knows neither threads nor trio: whoever has a loop passes it in as a `Loop`.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, MutableMapping, MutableSequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, cast, overload

from nngkit.documents import awareness as _awareness
from nngkit.documents import changes as _changes
from nngkit.documents import document as _document
from nngkit.documents import shared as _shared
from nngkit.documents import undo as _undo
from nngkit.documents.records import Saved
from nngkit.loop_waits import on_behalf

__all__ = ["Array", "Awareness", "ClosableIterator", "Document", "Loop", "Map", "Text", "Undo", "as_in"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., object])


class ClosableIterator(Protocol[R_co]):
    """An iterator whose `close`, from any thread, ends the iteration."""

    def __iter__(self) -> Iterator[R_co]: ...
    def __next__(self) -> R_co: ...
    def close(self) -> None:
        """End it; again is harmless."""


class Loop(Protocol):
    """How a thread reaches the loop in which a document lives."""

    def do(self, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        """What `function` returns or raises, called in the loop's thread."""

    def wait(self, function: Callable[P, Awaitable[R]], *arguments: P.args, **options: P.kwargs) -> R:
        """What a coroutine function returns or raises in the loop. Raises NngkitError while this thread holds it."""

    def iterate(self, source: AsyncGenerator[R, None]) -> ClosableIterator[R]:
        """The items of `source`, waited for; closing the iterator closes it."""

    def hold(self) -> AbstractContextManager[None]:
        """Let the loop do nothing until the end of the block but what this thread says with `do`."""


class _Lent(Generic[T]):
    """Something of the loop's side, and the way there."""

    __slots__ = ("_inner", "_of")

    def __init__(self, of: Document, inner: T) -> None:
        self._of = of
        self._inner: T = inner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Lent) and self._inner is other._inner

    def __hash__(self) -> int:
        return hash(id(self._inner))


def _lends(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A method that does not wait, called in the loop; parts of the document that it takes or gives are lent ones."""

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> R:
        given = (_own(value) for value in arguments)
        return cast(R, self._of._lent(self._of._loop.do(cast(Any, method), self._inner, *given, **options)))

    return call


def _waits(method: Callable[Concatenate[T, P], Awaitable[R]]) -> Callable[Concatenate[Any, P], R]:
    """A coroutine method, waited for."""

    @on_behalf
    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> R:
        return cast(R, self._of._loop.wait(method, self._inner, *arguments, **options))

    return call


def _reads(attribute: Any) -> Any:
    """A property, read in the loop."""
    return property(_lends(attribute.fget), doc=attribute.__doc__)


def as_in(method: Callable[..., object]) -> Callable[[F], F]:
    """A method with the name, the docstring and, for help(), the signature of `method`; its types stay its own."""
    return cast(Callable[[F], F], functools.wraps(method))


def _own(value: object) -> object:
    return value._inner if isinstance(value, _Lent) else value


class Text(_Lent[_shared.Text]):
    """A text that several edit at once: see nngkit.documents.Text."""

    __slots__ = ()

    __len__ = _lends(_shared.Text.__len__)
    __bool__ = _lends(_shared.Text.__bool__)
    __str__ = _lends(_shared.Text.__str__)
    __repr__ = _lends(_shared.Text.__repr__)
    __contains__ = _lends(_shared.Text.__contains__)
    __getitem__ = _lends(_shared.Text.__getitem__)
    __setitem__ = _lends(_shared.Text.__setitem__)
    __delitem__ = _lends(_shared.Text.__delitem__)
    insert = _lends(_shared.Text.insert)
    append = _lends(_shared.Text.append)
    delete = _lends(_shared.Text.delete)
    splice = _lends(_shared.Text.splice)
    cursor = _lends(_shared.Text.cursor)
    index_of = _lends(_shared.Text.index_of)
    plain = _lends(_shared.Text.plain)

    def __iadd__(self, text: str) -> Self:
        self.append(text)
        return self


class Map(_Lent[_shared.Map], MutableMapping[str, Any]):
    """Keys and values: see nngkit.documents.Map. `plain` takes all of them in one call, `items` each in one."""

    __slots__ = ()

    __hash__ = _Lent.__hash__
    __eq__ = _Lent.__eq__
    __len__ = _lends(_shared.Map.__len__)
    __repr__ = _lends(_shared.Map.__repr__)
    __contains__ = _lends(_shared.Map.__contains__)
    __getitem__ = _lends(_shared.Map.__getitem__)
    __setitem__ = _lends(_shared.Map.__setitem__)
    __delitem__ = _lends(_shared.Map.__delitem__)
    clear = _lends(_shared.Map.clear)
    popitem = _lends(_shared.Map.popitem)
    setdefault = _lends(_shared.Map.setdefault)
    plain = _lends(_shared.Map.plain)

    def __iter__(self) -> Iterator[str]:
        return iter(self._of._loop.do(list, self._inner))

    @as_in(_shared.Map.update)
    def update(self, *others: Any, **more: Any) -> None:
        self._of._loop.do(self._inner.update, *others, **more)

    @as_in(_shared.Map.pop)
    def pop(self, key: str, *default: Any) -> Any:
        return self._of._lent(self._of._loop.do(self._inner.pop, key, *default))


class Array(_Lent[_shared.Array], MutableSequence[Any]):
    """A list of values: see nngkit.documents.Array."""

    __slots__ = ()

    __hash__ = _Lent.__hash__
    __eq__ = _Lent.__eq__
    __len__ = _lends(_shared.Array.__len__)
    __repr__ = _lends(_shared.Array.__repr__)
    insert = _lends(_shared.Array.insert)
    append = _lends(_shared.Array.append)
    extend = _lends(_shared.Array.extend)
    clear = _lends(_shared.Array.clear)
    reverse = _lends(_shared.Array.reverse)
    pop = _lends(_shared.Array.pop)
    move = _lends(_shared.Array.move)
    remove = _lends(_shared.Array.remove)
    index = _lends(_shared.Array.index)
    count = _lends(_shared.Array.count)
    plain = _lends(_shared.Array.plain)

    @overload
    def __getitem__(self, key: int) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> list[Any]: ...
    def __getitem__(self, key: int | slice) -> Any:
        return self._of._lent(self._of._loop.do(self._inner.__getitem__, key))

    @as_in(_shared.Array.__setitem__)
    def __setitem__(self, key: int | slice, value: Any) -> None:
        self._of._loop.do(self._inner.__setitem__, key, _own(value))

    @as_in(_shared.Array.__delitem__)
    def __delitem__(self, key: int | slice) -> None:
        self._of._loop.do(self._inner.__delitem__, key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])


class Awareness(_Lent[_awareness.Awareness]):
    """Who is here, and where: see `Document.awareness` of nngkit.documents."""

    __slots__ = ()

    states = _reads(_awareness.Awareness.states)
    cursor = _lends(_awareness.Awareness.cursor)
    find = _lends(_awareness.Awareness.find)

    @property
    def local(self) -> dict[str, Any] | None:
        """Our state; None: nobody is to see us. Set it whole."""
        return self._of._loop.do(lambda: self._inner.local)

    @local.setter
    def local(self, state: dict[str, Any] | None) -> None:
        self._of._loop.do(setattr, self._inner, "local", state)

    def changes(self) -> ClosableIterator[_awareness.AwarenessChange]:
        """Read along from now on; closing the iterator ends it."""
        return self._of._loop.iterate(self._each(self._of._loop.do(self._inner.changes)))

    async def _each(
        self, reader: _changes.Reader[_awareness.AwarenessChange]
    ) -> AsyncGenerator[_awareness.AwarenessChange, None]:
        async with reader:
            async for change in reader:
                yield change


class Undo(_Lent[_undo.Undo]):
    """Takes back local edits, and does them again: see nngkit.documents.Undo."""

    __slots__ = ()

    can_undo = _reads(_undo.Undo.can_undo)
    can_redo = _reads(_undo.Undo.can_redo)
    undo = _lends(_undo.Undo.undo)
    redo = _lends(_undo.Undo.redo)
    stop_capturing = _lends(_undo.Undo.stop_capturing)
    clear = _lends(_undo.Undo.clear)


_LENT: Final[tuple[tuple[type, type[_Lent[Any]]], ...]] = (
    (_shared.Text, Text),
    (_shared.Map, Map),
    (_shared.Array, Array),
    (_undo.Undo, Undo),
)


class Document:
    """A document of nngkit.documents, for threads. Made by `nngkit.blocking.DocumentPeer.open`."""

    def __init__(self, inner: _document.Document, loop: Loop) -> None:
        self._of = self
        self._inner = inner
        self._loop = loop
        self._undos: dict[_undo.Undo, Undo] = {}
        self.name = inner.name
        self.read_only = inner.read_only
        self.client_id = inner.client_id
        self.awareness = Awareness(self, inner.awareness)

    def __repr__(self) -> str:
        return f"<Document {self.name!r}>"

    def _lent(self, value: object) -> Any:
        if isinstance(value, list):
            return [self._lent(item) for item in value]
        for kind, lent in _LENT:
            if isinstance(value, kind):
                return lent(self, value)
        return value

    @as_in(_document.Document.text)
    def text(self, name: str) -> Text:
        return cast(Text, self._lent(self._loop.do(self._inner.text, name)))

    @as_in(_document.Document.map)
    def map(self, name: str) -> Map:
        return cast(Map, self._lent(self._loop.do(self._inner.map, name)))

    @as_in(_document.Document.array)
    def array(self, name: str) -> Array:
        return cast(Array, self._lent(self._loop.do(self._inner.array, name)))

    plain = _lends(_document.Document.plain)
    digest = _lends(_document.Document.digest)
    saved_versions = _lends(_document.Document.saved_versions)
    durable = _waits(_document.Document.durable)
    synced = _waits(_document.Document.synced)
    joined = _waits(_document.Document.joined)
    save_version: Callable[..., Saved] = _waits(_document.Document.save_version)

    @contextmanager
    def transaction(self, origin: object = None) -> Iterator[None]:
        """Edits inside make one update, sent when the outermost of nested ones ends; `origin` is for `changes()`.

        The loop stands still until then, with everything of nngkit.blocking in this process, so be quick: what would
        wait for it raises NngkitError in here, and other threads wait. If the block raises, what it had edited stays,
        is sent, and the error goes on.
        """
        with self._loop.hold():
            block = _Block(self._inner, origin)
            try:
                self._loop.do(block.enter)
                yield
            except BaseException as error:
                if not self._loop.do(block.leave, error):
                    raise
            else:
                self._loop.do(block.leave, None)

    def undo(self, *scope: Text | Map | Array, window: float = _undo.WINDOW) -> Undo:
        """Undo of the edits made here, from now on, in `scope` (texts, maps, arrays, with what is nested in them)."""
        parts = [part._inner for part in scope]
        inner = self._loop.do(lambda: self._inner.undo(*parts, window=window))
        self._undos[inner] = made = Undo(self, inner)
        return made

    def changes(self) -> ClosableIterator[_changes.Change]:
        """Each transaction from now on, local and remote; closing the iterator ends it. Raises Full: see changes.py."""
        return self._loop.iterate(self._told(self._loop.do(self._inner.changes)))

    async def _told(self, reader: _changes.Reader[_changes.Change]) -> AsyncGenerator[_changes.Change, None]:
        async with reader:
            async for change in reader:
                if isinstance(change.origin, _undo.Undo):
                    change = replace(change, origin=self._undos.get(change.origin))
                yield change

    @as_in(_document.Document.at)
    def at(self, name: str) -> Document:
        return Document(self._loop.do(self._inner.at, name), self._loop)


class _Block:
    """A transaction, entered and left in the loop; left only where it was entered, whatever interrupts the thread."""

    def __init__(self, inner: _document.Document, origin: object) -> None:
        self._block = inner.transaction(origin)
        self._entered = False

    def enter(self) -> None:
        self._block.__enter__()
        self._entered = True

    def leave(self, error: BaseException | None) -> bool:
        if not self._entered:
            return False
        self._entered = False
        if error is None:
            return bool(self._block.__exit__(None, None, None))
        return bool(self._block.__exit__(type(error), error, error.__traceback__))
