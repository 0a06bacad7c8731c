"""Values: immutable objects of the domain, which `@value` makes of a class with annotated fields.

The type checker refuses an assignment to a field, and at run time nothing is checked: a dataclass that checks it, with
`frozen=True`, takes five times as long to make, and a chat makes hundreds. A rule of the tests refuses the ways around
the type checker. `frozen=True` stays on what other people's modules are handed, and on classes without equality.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

Class = TypeVar("Class")


@overload
def value(cls: type[Class], /) -> type[Class]: ...
@overload
def value(*, slots: bool) -> Callable[[type[Class]], type[Class]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(
    cls: type[Class] | None = None, /, *, slots: bool = True
) -> type[Class] | Callable[[type[Class]], type[Class]]:
    """Return the class as a value that is compared and hashed by its fields.

    `slots=False` is for values that journals store, since orjson writes a dataclass that has a dict five times as fast,
    and for values with a cached property.
    """

    def decorate(cls: type[Class]) -> type[Class]:
        described: Any = cls
        if "__repr__" not in vars(cls):
            described.__repr__ = _shown
        return dataclass(unsafe_hash=True, repr=False, slots=slots)(cls)

    return decorate if cls is None else decorate(cls)


def _shown(self: Any) -> str:
    """Return what `dataclass` writes for each class anew, which takes a megabyte for all of ours."""
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({shown})"


if TYPE_CHECKING:
    from dataclasses import replace as replace  # noqa: PLC0414 - for the type checker, which knows its keywords
else:

    def replace(value: Class, /, **changes: object) -> Class:
        """Return the value with these fields changed, as `dataclasses.replace` does, in a fifth of its time.

        Raises: KeyError if there is no field of a name.
        """
        indexes, read = _arguments(type(value))
        arguments = list(read(value))
        for name, changed in changes.items():
            arguments[indexes[name]] = changed
        return type(value)(*arguments)


@cache
def _arguments(cls: type[Any]) -> tuple[Mapping[str, int], Callable[[object], tuple[object, ...]]]:
    """Return the index of each field of a dataclass in the call that makes it, and a function that reads all."""
    first, *others = [each.name for each in fields(cls)]
    read = attrgetter(first, *others) if others else lambda value: (getattr(value, first),)
    return {name: index for index, name in enumerate([first, *others])}, read
