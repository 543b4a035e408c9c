# SPDX-License-Identifier: Apache-2.0
"""RMM, and cuDF with it."""
from __future__ import annotations

from fallow._arguments import framework, stream_handle
from fallow._library import lib
from fallow._pool import configure_with
from fallow._typing import Any, Settings, Unpack


def rmm_resource(device: int = 0, **settings: Unpack[Settings]) -> Any:
    """Return an RMM memory resource with Fallow's memory. `settings` are those of configure().

    Blocks are reused in the order of the streams that RMM names, which must live as long as the program allocates.
    Each call passes through Python. MemoryError: no memory within the limit; report() gives the reason. ImportError:
    needs RMM 25.12 or newer."""
    rmm = framework("rmm", "rmm_resource()")
    if not hasattr(rmm.pylibrmm.stream.Stream, "__cuda_stream__"):
        raise ImportError("fallow.rmm_resource() needs RMM 25.12 or newer, whose streams have numbers; this is %s"
                          % rmm.__version__)
    configure_with(settings)

    def allocate(size: int, stream: Any = None) -> int:
        address: int | None = lib().fallow_rmm_alloc(size, device, stream_handle(stream))
        if not address and size > 0:
            raise MemoryError("no %d bytes on device %d; fallow.report() says whose they are" % (size, device))
        return address or 0

    def deallocate(address: int, size: int, stream: Any = None) -> None:
        lib().fallow_torch_free(address, size, device, stream_handle(stream))

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)


def enable_rmm(device: int = 0, **settings: Unpack[Settings]) -> Any:
    """Make rmm_resource() the resource of a device for RMM and its users (cuDF, cuML, ...). Returns the resource."""
    rmm = framework("rmm", "enable_rmm()")
    resource = rmm_resource(device, **settings)
    rmm.mr.set_per_device_resource(device, resource)
    return resource
