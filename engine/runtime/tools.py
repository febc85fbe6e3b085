"""Tools of a tool-calling run: declared from typed Python functions, or from a JSON Schema."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, get_type_hints

import msgspec
from msgspec import Raw

from stepfold.engine.contract.schemas import compile_schema
from stepfold.engine.runtime.middleware import RunContext
from stepfold.events.configuration import Idempotency, Manifest


class ToolDeclarationError(TypeError):
    """A tool that can't be declared: which, and what its signature or schema lacks."""


class ToolResult(msgspec.Struct, frozen=True):
    """A result with more to say than its text: `error` marks it as one that the model should react to."""

    content: str
    error: str = ""


class Tool:
    """A manifest and the function behind it. `call` gets decoded arguments and the run's context.

    `child` is the harness behind a sub-agent.
    """

    def __init__(
        self,
        manifest: Manifest,
        function: Callable[..., Any],
        *,
        timeout: float | None = None,
        takes_context: str = "",
        decoder: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
        child: Any = None,
    ) -> None:
        self.manifest = manifest
        self.child = child
        self.timeout = timeout
        # A callable object is async when its `__call__` is, which hangs on its class.
        self.is_async = any(inspect.iscoroutinefunction(f) for f in (function, type(function).__call__))
        self._function = function
        self._takes_context = takes_context
        self._decoder = decoder
        # A schema that doesn't compile is the developer's error, and shows here, not in a run.
        compile_schema(bytes(manifest.schema))

    @property
    def name(self) -> str:
        """What models call it."""
        return self.manifest.name

    def call(self, arguments: Mapping[str, Any], context: RunContext) -> Any | Awaitable[Any]:
        """Run it. Raises whatever the function raises."""
        named = self._decoder(arguments) if self._decoder is not None else dict(arguments)
        if self._takes_context:
            named[self._takes_context] = context
        return self._function(**named)


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str = "",
    description: str = "",
    schema: bytes | Mapping[str, Any] | None = None,
    hidden: Sequence[str] = (),
    mutates: bool = False,
    network: bool = False,
    idempotency: Idempotency = "once",
    timeout: float | None = None,
) -> Any:
    """Declare a tool; usable as a decorator, with or without arguments.

    The schema comes from the signature: each parameter's annotation through msgspec, required where
    it has no default. A parameter annotated `RunContext` gets the run's context. `hidden` parameters
    are the host's: models neither see nor set them. `timeout` is in seconds. A function without
    annotations needs a `schema`. Raises ToolDeclarationError.
    """

    def declare(body: Callable[..., Any]) -> Tool:
        own_name = name or body.__name__
        text = description or (inspect.getdoc(body) or "").partition("\n")[0]
        context, fields = _parameters(body, own_name, annotated=schema is None)
        json_schema = _given(schema) if schema is not None else _derived(own_name, fields)
        manifest = Manifest(
            name=own_name,
            description=text,
            schema=Raw(json_schema),
            mutates=mutates,
            network=network,
            idempotency=idempotency,
            hidden=tuple(hidden),
        )
        decoder = None if schema is not None else _decoder(own_name, fields)
        return Tool(manifest, body, timeout=timeout, takes_context=context, decoder=decoder)

    return declare if function is None else declare(function)


def _parameters(
    body: Callable[..., Any], name: str, *, annotated: bool
) -> tuple[str, list[tuple[str, Any, Any]]]:
    hints = get_type_hints(body, include_extras=True)
    context = ""
    fields: list[tuple[str, Any, Any]] = []
    for parameter in inspect.signature(body).parameters.values():
        if hints.get(parameter.name) is RunContext:
            context = parameter.name
            continue
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            if annotated:
                raise ToolDeclarationError(
                    f"the tool {name!r} takes *{parameter.name}: name its arguments, or give a schema"
                )
            continue
        if annotated and parameter.name not in hints:
            raise ToolDeclarationError(f"the tool {name!r}: annotate {parameter.name!r}, or give a schema")
        default = msgspec.NODEFAULT if parameter.default is parameter.empty else parameter.default
        fields.append((parameter.name, hints.get(parameter.name, Any), default))
    return context, fields


def _shape(name: str, fields: Sequence[tuple[str, Any, Any]]) -> type[msgspec.Struct]:
    rows: list[Any] = [
        (field, kind) if default is msgspec.NODEFAULT else (field, kind, default)
        for field, kind, default in fields
    ]
    try:
        return msgspec.defstruct(f"{name}_arguments", rows, kw_only=True, forbid_unknown_fields=True)
    except (TypeError, ValueError) as error:
        raise ToolDeclarationError(f"the tool {name!r}: {error}") from error


def _derived(name: str, fields: Sequence[tuple[str, Any, Any]]) -> bytes:
    try:
        whole = msgspec.json.schema(_shape(name, fields))
    except TypeError as error:
        raise ToolDeclarationError(f"the tool {name!r}: {error}; give a schema") from error
    definitions = dict(whole.get("$defs", {}))
    schema = definitions.pop(f"{name}_arguments")
    schema.pop("title", None)
    schema.setdefault("additionalProperties", False)
    if definitions:
        schema["$defs"] = definitions
    return msgspec.json.encode(schema)


def _decoder(
    name: str, fields: Sequence[tuple[str, Any, Any]]
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    shape = _shape(name, fields)
    names = [field for field, _, _ in fields]

    def decode(arguments: Mapping[str, Any]) -> dict[str, Any]:
        value = msgspec.convert(dict(arguments), shape)
        return {field: getattr(value, field) for field in names}

    return decode


def _given(schema: bytes | Mapping[str, Any]) -> bytes:
    return schema if isinstance(schema, bytes) else msgspec.json.encode(schema)


def text_of(result: Any) -> ToolResult:
    """What a tool returned, as the model reads it: text as it is, anything else as JSON."""
    if isinstance(result, ToolResult):
        return result
    if isinstance(result, str):
        return ToolResult(result)
    return ToolResult("" if result is None else msgspec.json.encode(result).decode())
