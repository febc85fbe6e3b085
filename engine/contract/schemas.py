"""Compiled JSON Schemas of tool arguments: one validator a schema, kept."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import fastjsonschema
import msgspec
from msgspec import Struct


class Validator(Struct, frozen=True):
    """A compiled schema."""

    check: Callable[[Any], Any]

    def validate(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Every message about `arguments`, none when they fit."""
        try:
            self.check(arguments)
        except fastjsonschema.JsonSchemaValuesException as broken:
            return tuple(str(one) for one in broken.errors)
        except fastjsonschema.JsonSchemaValueException as broken:
            return (broken.message,)
        return ()


@lru_cache(maxsize=512)
def compile_schema(schema: bytes) -> Validator:
    """Compile a JSON Schema given as bytes. Raises what fastjsonschema raises on a broken one."""
    return Validator(fastjsonschema.compile(msgspec.json.decode(schema), use_default=False, fast_fail=False))
