"""Documents for threads: each call is made in the thread of the document's loop, and waited for.

::

    doc = peer.open("minutes")                       # of nngkit.blocking.DocumentPeer
    doc.text("body").insert(0, "hello")
    with doc.transaction():                          # one update; the loop does nothing else until it ends
        doc.map("meta")["title"] = "Minutes"
    doc.joined(timeout=5)
    for change in doc.changes(): ...

Names, arguments, results and errors are those of `document.py` and `shared.py`; async methods block here. Calls are
allowed from any thread. Each call is atomic, and so is a transaction: other threads and remote updates wait for its
end. New content is made of `nngkit.documents.Text`, `Map` and `Array`, as there.

`python3 dev.py faces` writes `Document` itself, for threads and for asyncio, on `Whole`; the rest is the same for both.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, MutableMapping, MutableSequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeAlias, TypeVar, cast, overload

from nngkit.documents import awareness as _awareness
from nngkit.documents import changes as _changes
from nngkit.documents import document as _document
from nngkit.documents import shared as _shared
from nngkit.documents import undo as _undo
from nngkit.hosted import Face, Hosted
from nngkit.portal import Calls

T = TypeVar("T")
R = TypeVar("R")
D = TypeVar("D", bound="Whole")
P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., object])


class ClosableIterator(Protocol[R_co]):
    """An iterator with `close`, which ends the iteration from any thread."""

    def __iter__(self) -> Iterator[R_co]: ...
    def __next__(self) -> R_co: ...
    def close(self) -> None:
        """End the iteration; idempotent."""


Changes: TypeAlias = ClosableIterator[_awareness.AwarenessChange]


class _Proxy(Generic[T]):
    """Proxy of an object in the loop."""

    __slots__ = ("_inner", "_of")

    def __init__(self, of: Whole, inner: T) -> None:
        self._of = of
        self._inner: T = inner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Proxy) and self._inner is other._inner

    def __hash__(self) -> int:
        return hash(id(self._inner))


def _calls(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Wrap a synchronous method: call it in the loop; proxies are converted in arguments and results."""

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> R:
        given = (_unwrap(value) for value in arguments)
        return cast(R, self._of._wrap(self._of._call(cast(Any, method), self._inner, *given, **options)))

    return call


def _reads(attribute: Any) -> Any:
    """Wrap a property: read it in the loop."""
    return property(_calls(attribute.fget), doc=attribute.__doc__)


def as_in(method: Callable[..., object]) -> Callable[[F], F]:
    """Copy name, docstring and help() signature of `method`; the types stay those of the decorated function."""
    return cast(Callable[[F], F], functools.wraps(method))


def _unwrap(value: object) -> object:
    return value._inner if isinstance(value, _Proxy) else value


class Text(_Proxy[_shared.Text]):
    """Text that several peers edit concurrently: see nngkit.documents.Text."""

    __slots__ = ()

    __len__ = _calls(_shared.Text.__len__)
    __bool__ = _calls(_shared.Text.__bool__)
    __str__ = _calls(_shared.Text.__str__)
    __repr__ = _calls(_shared.Text.__repr__)
    __contains__ = _calls(_shared.Text.__contains__)
    __getitem__ = _calls(_shared.Text.__getitem__)
    __setitem__ = _calls(_shared.Text.__setitem__)
    __delitem__ = _calls(_shared.Text.__delitem__)
    insert = _calls(_shared.Text.insert)
    append = _calls(_shared.Text.append)
    delete = _calls(_shared.Text.delete)
    splice = _calls(_shared.Text.splice)
    cursor = _calls(_shared.Text.cursor)
    index_of = _calls(_shared.Text.index_of)
    plain = _calls(_shared.Text.plain)

    def __iadd__(self, text: str) -> Self:
        self.append(text)
        return self


class Map(_Proxy[_shared.Map], MutableMapping[str, Any]):
    """Map: see nngkit.documents.Map. `plain` reads everything in one call, `items` needs one call per item."""

    __slots__ = ()

    __hash__ = _Proxy.__hash__
    __eq__ = _Proxy.__eq__
    __len__ = _calls(_shared.Map.__len__)
    __repr__ = _calls(_shared.Map.__repr__)
    __contains__ = _calls(_shared.Map.__contains__)
    __getitem__ = _calls(_shared.Map.__getitem__)
    __setitem__ = _calls(_shared.Map.__setitem__)
    __delitem__ = _calls(_shared.Map.__delitem__)
    clear = _calls(_shared.Map.clear)
    popitem = _calls(_shared.Map.popitem)
    setdefault = _calls(_shared.Map.setdefault)
    plain = _calls(_shared.Map.plain)

    def __iter__(self) -> Iterator[str]:
        return iter(self._of._call(list, self._inner))

    @as_in(_shared.Map.update)
    def update(self, *others: Any, **more: Any) -> None:
        self._of._call(self._inner.update, *others, **more)

    @as_in(_shared.Map.pop)
    def pop(self, key: str, *default: Any) -> Any:
        return self._of._wrap(self._of._call(self._inner.pop, key, *default))


class Array(_Proxy[_shared.Array], MutableSequence[Any]):
    """List of values: see nngkit.documents.Array."""

    __slots__ = ()

    __hash__ = _Proxy.__hash__
    __eq__ = _Proxy.__eq__
    __len__ = _calls(_shared.Array.__len__)
    __repr__ = _calls(_shared.Array.__repr__)
    insert = _calls(_shared.Array.insert)
    append = _calls(_shared.Array.append)
    extend = _calls(_shared.Array.extend)
    clear = _calls(_shared.Array.clear)
    reverse = _calls(_shared.Array.reverse)
    pop = _calls(_shared.Array.pop)
    move = _calls(_shared.Array.move)
    remove = _calls(_shared.Array.remove)
    index = _calls(_shared.Array.index)
    count = _calls(_shared.Array.count)
    plain = _calls(_shared.Array.plain)

    @overload
    def __getitem__(self, key: int) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> list[Any]: ...
    def __getitem__(self, key: int | slice) -> Any:
        return self._of._wrap(self._of._call(self._inner.__getitem__, key))

    @as_in(_shared.Array.__setitem__)
    def __setitem__(self, key: int | slice, value: Any) -> None:
        self._of._call(self._inner.__setitem__, key, _unwrap(value))

    @as_in(_shared.Array.__delitem__)
    def __delitem__(self, key: int | slice) -> None:
        self._of._call(self._inner.__delitem__, key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])


class Awareness(_Proxy[_awareness.Awareness]):
    """Awareness states: see `Document.awareness` of nngkit.documents."""

    __slots__ = ()

    states = _reads(_awareness.Awareness.states)
    cursor = _calls(_awareness.Awareness.cursor)
    find = _calls(_awareness.Awareness.find)

    @property
    def local(self) -> dict[str, Any] | None:
        """The local state; None: not visible to others. Set it as a whole."""
        return self._of._call(lambda: self._inner.local)

    @local.setter
    def local(self, state: dict[str, Any] | None) -> None:
        self._of._call(setattr, self._inner, "local", state)

    def changes(self) -> Changes:
        """Iterate over changes from now on; closing the iterator ends it."""
        return cast(Changes, self._of._iterate(self._each, self._of._call(self._inner.changes)))

    async def _each(
        self, _: object, reader: _changes.ChangeReader[_awareness.AwarenessChange]
    ) -> AsyncGenerator[_awareness.AwarenessChange, None]:
        async with reader:
            async for change in reader:
                yield change


class Undo(_Proxy[_undo.Undo]):
    """Undo of local edits: see nngkit.documents.Undo."""

    __slots__ = ()

    can_undo = _reads(_undo.Undo.can_undo)
    can_redo = _reads(_undo.Undo.can_redo)
    undo = _calls(_undo.Undo.undo)
    redo = _calls(_undo.Undo.redo)
    stop_capturing = _calls(_undo.Undo.stop_capturing)
    clear = _calls(_undo.Undo.clear)


_PROXIES: Final[tuple[tuple[type, type[_Proxy[Any]]], ...]] = (
    (_shared.Text, Text),
    (_shared.Map, Map),
    (_shared.Array, Array),
    (_undo.Undo, Undo),
)


class Whole(Face[_document.Document]):
    """Base of the documents of nngkit.aio and nngkit.blocking, which an object in the portal has opened."""

    def __init__(self, inner: _document.Document, owner: Face[Any]) -> None:
        self._of = self
        self._inner = inner
        self._owner = owner
        self._undos: dict[_undo.Undo, Undo] = {}
        self.name = inner.name
        self.read_only = inner.read_only
        self.client_id = inner.client_id
        self.awareness = Awareness(self, inner.awareness)

    def __repr__(self) -> str:
        return f"<Document {self.name!r}>"

    def _open_object(self) -> tuple[Calls, _document.Document]:
        return self._owner._open_object()[0], self._inner

    def _call(self, function: Callable[P, R], /, *arguments: P.args, **options: P.kwargs) -> R:
        return self._open_object()[0].do(function, *arguments, **options)

    def _wrap(self, value: object) -> Any:
        if isinstance(value, list):
            return [self._wrap(item) for item in value]
        for kind, proxy in _PROXIES:
            if isinstance(value, kind):
                return proxy(self, value)
        return value

    @contextmanager
    def transaction(self, origin: object = None) -> Iterator[None]:
        """Group edits into one update, sent when the outermost block ends; `origin` appears in `changes()`.

        The loop stops until then, with all of nngkit.blocking in this process, so keep it short: calls inside that
        would wait for the loop raise NngkitError, and other threads wait. If the block raises, its edits stay and are
        sent, and the exception propagates.
        """
        with self._open_object()[0].hold():
            block = _Block(self._inner, origin)
            try:
                self._call(block.enter)
                yield
            except BaseException as error:
                if not self._call(block.leave, error):
                    raise
            else:
                self._call(block.leave, None)

    def undo(self, *scope: Text | Map | Array, window: float = _undo.WINDOW) -> Undo:
        """Return an undo history of local edits in `scope` (shared types, with those nested in them), from now on."""
        parts = [part._inner for part in scope]
        inner = self._call(lambda: self._inner.undo(*parts, window=window))
        self._undos[inner] = made = Undo(self, inner)
        return made

    async def _told(
        self, _: object, reader: _changes.ChangeReader[_changes.Change]
    ) -> AsyncGenerator[_changes.Change, None]:
        async with reader:
            async for change in reader:
                if isinstance(change.origin, _undo.Undo):
                    change = replace(change, origin=self._undos.get(change.origin))
                yield change


class Opener(Hosted[T]):
    """Base of objects that open documents, the same one each time."""

    def __init__(self) -> None:
        super().__init__()
        self._documents: dict[str, tuple[_document.Document, Any]] = {}
        self._opening = threading.Lock()

    def _for_program(self, make: Callable[[_document.Document, Face[Any]], D], inner: _document.Document) -> D:
        """Return the document for the program."""
        with self._opening:
            known, document = self._documents.get(inner.name, (None, None))
            if document is None or known is not inner:
                document = make(inner, self)
                self._documents[inner.name] = inner, document
            return cast(D, document)

    def _all(
        self, make: Callable[[_document.Document, Face[Any]], D], opened: dict[str, _document.Document]
    ) -> dict[str, D]:
        return {name: self._for_program(make, inner) for name, inner in opened.items()}


class _Block:
    """A transaction, entered and left in the loop; left only if it was entered, also when the thread is interrupted."""

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
