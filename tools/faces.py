"""Write the classes of nngkit.aio and nngkit.blocking from those under trio: `python3 dev.py faces`.

::

    python tools/faces.py           # write nngkit/{aio,blocking}/*.py that FAMILIES names
    python tools/faces.py --check   # exit with 1 if one of them is not what would be written

It reads the sources and imports none of them. Each public method and property of a class gets a method of the same
name, arguments, defaults and docstring; its body is one call of the hand-written bases `_base.py`:

    async def                       _wait: await, or block until it returns
    async generator                 _iterate: an iterator
    def                             _do: in the portal's thread; `anywhere` names those that any thread may call
    property                        read in the calling thread; those of `Face.inside` in the portal's
    __init__                        decorated by `constructor`; written out if an argument may be one of these classes

What differs from that stands in FAMILIES.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from faces_table import FAMILIES, Face, Family

ROOT = Path(__file__).resolve().parents[1]
RUFF = Path(sys.executable).parent / "ruff"
ITERATION = "__aiter__", "__anext__"
Kind = Literal["aio", "blocking"]

Function = ast.FunctionDef | ast.AsyncFunctionDef


# ---- the sources -----------------------------------------------------------------------------------------------------


class Module:
    """The names that a module defines and imports."""

    def __init__(self, name: str) -> None:
        self.name = name
        base = ROOT / name.replace(".", "/")
        path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        self.source = path.read_text()
        self.defined: dict[str, ast.stmt] = {}
        self.imported: dict[str, tuple[str, str]] = {}  # name: (module, name there; "" for the module itself)
        for statement in self._statements(ast.parse(self.source).body):
            match statement:
                case ast.ClassDef(name=found) | ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found):
                    self.defined[found] = statement
                case ast.Assign(targets=[ast.Name(id=found)]) | ast.AnnAssign(target=ast.Name(id=found)):
                    self.defined[found] = statement
                case ast.ImportFrom(module=str(module), names=names):
                    self.imported |= {each.asname or each.name: (module, each.name) for each in names}
                case ast.Import(names=names):
                    self.imported |= {each.asname or each.name.partition(".")[0]: (each.name, "") for each in names}

    def _statements(self, body: list[ast.stmt]) -> Iterator[ast.stmt]:
        for statement in body:
            yield statement
            if isinstance(statement, ast.If):  # TYPE_CHECKING
                yield from self._statements(statement.body)

    def find(self, name: str) -> tuple[Module, str]:
        """Return the module of this project that defines `name`, and its name there."""
        if name in self.defined:
            return self, name
        module, original = self.imported[name]
        if not module.startswith("nngkit"):
            raise LookupError(name)
        return module_of(module).find(original)


@cache
def module_of(name: str) -> Module:
    return Module(name)


@dataclass
class Member:
    """A public method or property, with the module that defines it."""

    module: Module
    function: Function
    overloads: list[Function] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.function.name

    @property
    def is_property(self) -> bool:
        return any(isinstance(each, ast.Name) and each.id == "property" for each in self.function.decorator_list)

    @property
    def items(self) -> ast.expr | None:
        """Return the type of an async generator's items."""
        match self.function.returns:
            case ast.Subscript(value=ast.Name(id="AsyncGenerator"), slice=ast.Tuple(elts=[item, _])):
                return item
        return None


@dataclass
class Source:
    """A class under trio."""

    module: Module
    name: str

    @property
    def node(self) -> ast.ClassDef:
        node = self.module.defined[self.name]
        assert isinstance(node, ast.ClassDef)
        return node

    @property
    def is_generic(self) -> bool:
        """True if it has a type variable of its module."""
        bases = [base.slice for base in self.node.bases if isinstance(base, ast.Subscript)]
        return any(isinstance(self.module.defined.get(ast.unparse(base)), ast.Assign) for base in bases)

    def line(self) -> Iterator[Source]:
        """Yield the class and its bases in this project, the class first."""
        yield self
        for base in self.node.bases:
            if isinstance(base, ast.Name):
                try:
                    module, name = self.module.find(base.id)
                except LookupError:
                    continue
                if name != "UnderTrio":
                    yield from Source(module, name).line()

    def members(self, *, own: bool = False) -> dict[str, Member]:
        """Return the methods by name; `own`: without those of its bases."""
        found: dict[str, Member] = {}
        for source in [self] if own else self.line():
            overloads: dict[str, list[Function]] = {}
            for node in source.node.body:
                if not isinstance(node, Function):
                    continue
                if any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list):
                    overloads.setdefault(node.name, []).append(node)
                else:
                    found.setdefault(node.name, Member(source.module, node, overloads.get(node.name, [])))
        return found


def source_of(path: str) -> Source:
    module, _, name = path.rpartition(".")
    return Source(*module_of(module).find(name))


def docstring(module: Module, node: Function | ast.ClassDef) -> str:
    """Return the docstring as it is written, with its quotes; "" without one."""
    match node.body:
        case [ast.Expr(value=ast.Constant(value=str()) as text), *_]:
            return ast.get_source_segment(module.source, text) or ""
    return ""


def text_of(quoted: str) -> str:
    return str(ast.literal_eval(quoted)) if quoted else ""


# ---- a face ----------------------------------------------------------------------------------------------------------


class Writer:
    """One module of one face."""

    def __init__(self, kind: Kind, family: Family) -> None:
        self.kind = kind
        self.family = family
        self.imports: dict[tuple[str, str], str] = {}
        self.for_types: set[tuple[str, str]] = set()
        self.taken = {face.name for face in family.faces}
        self.modules: dict[str, str] = {}

    def write(self) -> str:
        """Return the module's text, not yet formatted."""
        classes = "\n\n".join(self.face(face) for face in self.family.faces)
        variables = self.spelled(self.family.variables)
        names = sorted(face.name for face in self.family.faces if face.public)
        what = {"aio": "for asyncio programs", "blocking": "without an event loop"}[self.kind]
        lines = [
            f'"""{self.family.title} {what}.\n\nGenerated by `python3 dev.py faces`; do not edit.\n"""',
            "from __future__ import annotations",
        ]
        for module, alias in self.modules.items():
            parent, _, name = module.rpartition(".")
            lines.append(f"from {parent} import {name} as {alias}")
        typing = ["TYPE_CHECKING"] if self.for_types else []
        lines += [f"from typing import {each}" for each in typing]
        for (module, name), alias in self.imports.items():
            if (module, name) not in self.for_types:
                lines.append(imported(module, name, alias))
        if self.for_types:
            lines.append("if TYPE_CHECKING:")
            lines += ["    " + imported(module, name, self.imports[module, name]) for module, name in self.for_types]
        lines += [f"__all__ = {names!r}", variables, classes]
        return "\n\n".join(lines) + "\n"

    # ---- names

    def need(self, module: str, name: str = "") -> str:
        """Import a name, or a module; return what it is called here."""
        if (module, name) not in self.imports:
            alias = wanted = name or module
            if wanted in self.taken:
                of = module.rpartition(".")[2]
                alias = f"{of.upper()}_{wanted}" if wanted.isupper() else f"{of.title().replace('_', '')}{wanted}"
            self.imports[module, name] = alias
            self.taken.add(alias)
        return self.imports[module, name]

    def reference(self, source: Source) -> str:
        """Return the class under trio as this module calls it."""
        module = source.module.name
        self.modules.setdefault(module, "_" + module.rpartition(".")[2])
        return f"{self.modules[module]}.{source.name}"

    def expression(self, module: Module, node: ast.expr, *, result: bool = False) -> str:
        """Return an annotation or a default, with its names imported; in a `result`, classes are faces."""
        writer = self

        class Rename(ast.NodeTransformer):
            def visit_Name(self, name: ast.Name) -> ast.AST:
                return ast.copy_location(ast.Name(writer.named(module, name.id, result), name.ctx), name)

        return ast.unparse(Rename().visit(ast.parse(ast.unparse(node), mode="eval")))

    def named(self, module: Module, name: str, result: bool) -> str:
        if result and (face := self.face_of(module, name)) is not None:
            return face
        if name in module.defined:
            return self.need(module.name, name)
        if name in module.imported:
            return self.need(*module.imported[name])
        return name  # a builtin

    def faces_in(self, annotation: str) -> str:
        """Return an annotation of the table, whose names are those of faces, with these imported."""
        for family in FAMILIES:
            for face in family.faces:
                if family is not self.family and re.search(rf"\b{face.name}\b", annotation):
                    self.need(f"nngkit.{self.kind}.{family.name}", face.name)
        return annotation

    def spelled(self, text: str) -> str:
        """Return a text of the table with its dotted paths imported."""
        return re.sub(
            r"\b(nngkit|typing|collections)((?:\.\w+)*)\.(\w+)", lambda found: self.need(*found[0].rsplit(".", 1)), text
        )

    def face_of(self, module: Module, name: str) -> str | None:
        """Return the name here of the face of a class, if it has one."""
        try:
            found, original = module.find(name)
        except LookupError:
            return None
        for family in FAMILIES:
            for face in family.faces:
                source = source_of(face.of)
                if (source.module.name, source.name) == (found.name, original):
                    if family is not self.family:
                        key = (f"nngkit.{self.kind}.{family.name}", face.name)
                        self.for_types.add(key)  # without the extra of that family, only those that use it fail
                        self.need(*key)
                    return face.name
        return None

    # ---- classes

    def face(self, face: Face) -> str:
        source = source_of(face.of)
        own = self.reference(source)
        base = face.bases.get(self.kind)
        if base is None:
            parent = "Handle" if face.handle else {"aio": "Aio", "blocking": "Blocking"}[self.kind]
            base = f"nngkit.{self.kind}._base.{parent}"
        hand_written = set(source_of(base).members()) if face.bases else set()
        parent = self.need(*base.rsplit(".", 1)) if base.startswith("nngkit.") else base
        if face.within:
            parent = f"{face.within}[{own}]"
        elif not face.bases or source_of(base).is_generic:
            parent += f"[{face.variable or own}]"
        lines = [f"class {face.name}({parent}):", indented(self.class_docstring(face, source), 4)]
        members = source.members(own=bool(face.within))
        if not face.handle and not face.variable:
            lines.append(f"    _of = {own}")
            lines.append(self.constructor(face, own, members["__init__"]))
        lines += [self.attribute(name, *what) for name, what in face.attributes.items()]
        skipped = {"aclose", *face.hidden.split(), *hand_written}
        for name, member in members.items():
            if name not in skipped and (not name.startswith("_") or name in ITERATION):
                lines.append(self.method(face, own, member))
        return "\n\n".join(filter(None, lines))

    def class_docstring(self, face: Face, source: Source) -> str:
        text = text_of(docstring(source.module, source.node)).rstrip()
        text = text.replace(", under trio", "")
        if self.kind == "blocking":
            text = text.replace("`async with`", "`with`")
        for package in (self.kind, "both"):
            if note := face.notes.get(package):
                text += "\n\n" + textwrap.fill(note, 120, initial_indent="    ", subsequent_indent="    ")
        return f'"""{text}\n    """' if "\n" in text else f'"""{text}"""'

    def constructor(self, face: Face, own: str, init: Member) -> str:
        if not face.objects:
            through = {"callback": face.callbacks, "handler": face.handlers, "middleware": face.middleware}
            bridged = [f", {name}={how!r}" for how, names in through.items() for name in names.split()]
            arguments = own + "".join(bridged if self.kind == "aio" else [])
            decorator = self.need("nngkit.hosted", "constructor")
            return f"    @{decorator}({arguments})\n    def __init__(self) -> None:\n        super().__init__()"

        def given(name: str) -> str:
            return f"{self.need('nngkit.hosted', 'hosted')}({name})" if name in face.objects else name

        signature, arguments = self.signature(init, given, face.objects)
        lines = [f"    def __init__({signature}) -> None:", "        super().__init__()"]
        for name in face.objects:
            if name.startswith("options."):
                key = name.partition(".")[2]
                lines.append(f"        if {key!r} in options:")
                lines.append(f"            options[{key!r}] = {self.need('nngkit.hosted', 'hosted')}(options[{key!r}])")
        if self.kind == "aio" and (bridge := face.bridge):
            lines.append('        if "middleware" in options:')
            lines.append(f'            options["middleware"] = {bridge}.middleware(options["middleware"])')
        lines.append(f"        self._inner = {own}({arguments})")
        return "\n".join(lines)

    def attribute(self, name: str, annotation: str, doc: str) -> str:
        definition = f"    @property\n    def {name}(self) -> {self.spelled(annotation)}:"
        return f'{definition}\n        """{doc}"""\n        return self._inner.{name}'

    def method(self, face: Face, own: str, member: Member) -> str:
        name, function, module = member.name, member.function, member.module
        doc = docstring(module, function)
        body = f"        {doc}\n" if doc else ""
        if name in ITERATION:
            return self.iteration(own, member, body)
        signature, arguments = self.signature(member)
        given = f", {arguments}" if arguments else ""
        assert function.returns is not None, name
        if name in face.returns(self.kind):
            returns = self.spelled(face.returns(self.kind)[name])
        else:
            returns = self.expression(module, function.returns, result=True)
        call = face.calls(self.kind).get(name)
        if call is not None:
            call = self.spelled(call.format(arguments=arguments, own=own, method=f"{own}.{name}"))
        method = f"{own}.{name}"
        if function.args.kwarg is not None:  # to mypy, `**` may name the method's `self`
            method, given = f"lambda inner: inner.{name}({arguments})", ""
        decorators, definition = [], "def"
        holds = next((each.name for each in self.family.faces if each.handle == "calls" and each.name == returns), None)
        if member.is_property:
            decorators = ["@property"]
            inside = f"self._do(lambda inner: inner.{name})" if name in face.inside.split() else f"self._opened.{name}"
            call = call or inside
        elif isinstance(function, ast.AsyncFunctionDef) and member.items is None:
            call = call or f"self._wait({method}{given})"
            if self.kind == "aio":
                call, definition = f"await {call}", "async def"
            else:
                decorators = [f"@{self.need('nngkit.loop_waits', 'on_behalf')}"]
        elif name in face.repeated:
            item = self.expression(module, function.returns.slice, result=True)  # type: ignore[attr-defined]
            call = f"self._repeat({own}.{face.repeated[name]})"
            returns = f"{self.iterator('AsyncGenerator')}[{item}{', None' if self.kind == 'aio' else ''}]"
        elif member.items is not None:
            call = call or f"self._iterate({method}{given})"
            returns = f"{self.iterator()}[{self.expression(module, member.items, result=True)}]"
        elif name in face.anywhere.split():
            call = call or f"self._opened.{name}({arguments})"
        else:
            call = call or f"self._do({method}{given})"
        if holds:
            body += "        calls, _ = self._open_object()\n"
            call = f"{holds}({call}, calls)"
        parts = []
        for overload in member.overloads:
            typed, _ = self.signature(Member(module, overload))
            assert overload.returns is not None
            result = self.expression(module, overload.returns, result=True)
            parts.append(f"    @{self.need('typing', 'overload')}\n    {definition} {name}({typed}) -> {result}: ...")
        lines = [f"    {each}" for each in decorators] + [f"    {definition} {name}({signature}) -> {returns}:"]
        parts.append("\n".join([*lines, f"{body}        {'' if returns == 'None' else 'return '}{call}"]))
        return "\n".join(parts)

    def iterator(self, waiting: str = "") -> str:
        if self.kind == "aio":
            return (
                self.need("collections.abc", waiting) if waiting else self.need("nngkit.aio._base", "AsyncioIterator")
            )
        return self.need("collections.abc", "Iterator") if waiting else self.need("nngkit.portal", "BlockingIterator")

    def iteration(self, own: str, member: Member, body: str) -> str:
        function = member.function
        assert function.returns is not None
        if member.items is not None:  # __aiter__ is an async generator
            name = {"aio": "__aiter__", "blocking": "__iter__"}[self.kind]
            item = self.expression(member.module, member.items, result=True)
            definition = f"    def {name}(self) -> {self.iterator()}[{item}]:"
            return f"{definition}\n{body}        return self._iterate({own}.__aiter__)"
        item = self.expression(member.module, function.returns, result=True)
        if member.name == "__aiter__":
            if self.kind == "blocking":
                return ""
            return f"    def __aiter__(self) -> {item}:\n        return self"
        if self.kind == "aio":
            return f"    async def __anext__(self) -> {item}:\n        return await self._wait({own}.__anext__)"
        return f"    def __iter__(self) -> {self.iterator('-')}[{item}]:\n        return self._repeat({own}.__anext__)"

    def signature(
        self, member: Member, pass_on: Callable[[str], str] = str, types: Mapping[str, str] | None = None
    ) -> tuple[str, str]:
        """Return the parameters of a method, and the arguments that pass them on."""
        old = member.function.args
        call: list[str] = []

        def parameter(each: ast.arg, default: ast.expr | None = None, star: str = "") -> str:
            text = star + each.arg
            if types and each.arg in types:
                text += f": {self.faces_in(types[each.arg])}"
            elif each.annotation is not None:
                text += f": {self.expression(member.module, each.annotation)}"
            if default is not None:
                text += f" = {self.expression(member.module, default)}"
            return text

        parts: list[str] = []
        plain = [*old.posonlyargs, *old.args]
        defaults = [None] * (len(plain) - len(old.defaults)) + list(old.defaults)
        for number, (each, default) in enumerate(zip(plain, defaults, strict=True)):
            parts.append(parameter(each, default))
            if number:
                call.append(pass_on(each.arg))
            if number + 1 == len(old.posonlyargs):
                parts.append("/")
        if old.vararg is not None:
            parts.append(parameter(old.vararg, star="*"))
            call.append(f"*{old.vararg.arg}")
        elif old.kwonlyargs:
            parts.append("*")
        for each, default in zip(old.kwonlyargs, old.kw_defaults, strict=True):
            parts.append(parameter(each, default))
            call.append(f"{each.arg}={pass_on(each.arg)}")
        if old.kwarg is not None:
            parts.append(parameter(old.kwarg, star="**"))
            call.append(f"**{old.kwarg.arg}")
        return ", ".join(parts), ", ".join(call)


def imported(module: str, name: str, alias: str) -> str:
    if not name:
        return f"import {module}"
    return f"from {module} import {name}" + (f" as {alias}" if alias != name else "")


def indented(text: str, by: int) -> str:
    return " " * by + text


# ---- files -----------------------------------------------------------------------------------------------------------


def formatted(text: str, path: Path) -> str:
    for command in (["check", "--fix", "--quiet", "--select=I,F401", "--exit-zero"], ["format", "--quiet"]):
        argv = [str(RUFF), *command, f"--stdin-filename={path}", "-"]
        done = subprocess.run(argv, input=text, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode:
            raise SystemExit(f"{path}: {done.stderr}\n{text}")
        text = done.stdout
    return text


def demand_faces() -> None:
    """Exit if a class under trio has no face."""
    faced = {source.node for family in FAMILIES for face in family.faces for source in source_of(face.of).line()}
    served = ROOT / "nngkit" / "web"  # by a command, in its own loop
    for path in sorted((ROOT / "nngkit").rglob("*.py")):
        if "(UnderTrio)" in path.read_text() and served not in path.parents:
            module = module_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
            for node in module.defined.values():
                if isinstance(node, ast.ClassDef) and "UnderTrio" in map(ast.unparse, node.bases) and node not in faced:
                    sys.exit(f"{module.name}.{node.name} has no face: add it to tools/faces_table.py")


def main(arguments: list[str]) -> None:
    stale = []
    demand_faces()
    for family in FAMILIES:
        for kind in ("aio", "blocking"):
            path = ROOT / "nngkit" / kind / f"{family.name}.py"
            text = formatted(Writer(kind, family).write(), path)
            if path.exists() and path.read_text() == text:
                continue
            stale.append(str(path.relative_to(ROOT)))
            if not arguments:
                path.write_text(text)
    if arguments and stale:
        sys.exit(f"not as `python3 dev.py faces` would write them: {' '.join(stale)}")
    sys.stdout.write("".join(f"{path}\n" for path in stale) or "up to date\n")


if __name__ == "__main__":
    main(sys.argv[1:])
