"""`stepfold.testing`: the public name of the kit in `stepfold.engine.testing`."""

from typing import TYPE_CHECKING, Any

from stepfold.engine import testing as _kit

if TYPE_CHECKING:
    from stepfold.engine.testing import *  # noqa: F403

__all__ = _kit.__all__  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    return getattr(_kit, name)


def __dir__() -> list[str]:
    return __all__
