# SPDX-License-Identifier: Apache-2.0
"""Types for annotations, which are not evaluated: importing typing takes longer than importing this package."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import (Any as Any, BinaryIO as BinaryIO, Callable as Callable, Iterable as Iterable,
                        Iterator as Iterator, Mapping as Mapping, Sequence as Sequence, TypedDict, TypeVar, Union)

    from typing_extensions import Unpack as Unpack

    AnyPath = TypeVar("AnyPath", bound=Union[str, os.PathLike[str]])

    class Settings(TypedDict, total=False):
        """The parameters of configure()."""

        limit: int | str | None
        economy: str
        reuse: str
        decay_ms: int | str | None
        driver: str | None
        page_source: str
        one_handle: int | str | None
        helper_thread: bool
else:
    Any = AnyPath = BinaryIO = Callable = Iterable = Iterator = Mapping = Sequence = Settings = Unpack = None
