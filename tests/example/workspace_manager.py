# SPDX-License-Identifier: Apache-2.0
"""vLLM's WorkspaceManager on arenas: the layers of a model share the scratch of a step. Each micro-batch and lane
has its own arena.

    manager = WorkspaceManager(torch.device("cuda", 0), num_ubatches=2, current_ubatch=dbo_current_ubatch_id)
    hidden, inner = manager.get_simultaneous(((tokens, 4096), torch.bfloat16), ((tokens, 1536), torch.bfloat16))

A workspace grows in place, so captured graphs stay valid and old tensors keep no memory. Streams that use a workspace
in turn are ordered on the device. Launch graphs on the stream of the eager steps between them. All workspaces share
the pool of the device."""
import contextlib
import contextvars
import math

import fallow

_lane = contextvars.ContextVar("lane", default=0)


@contextlib.contextmanager
def use_workspace_lane(lane):
    token = _lane.set(lane)
    try:
        yield
    finally:
        _lane.reset(token)


class WorkspaceManager:
    def __init__(self, device, num_ubatches=1, num_lanes=1, current_ubatch=lambda: 0):
        slots = [(ubatch, lane) for ubatch in range(num_ubatches) for lane in range(num_lanes)]
        self._scratch = {slot: fallow.Arena(device.index, "scratch of ubatch %d, lane %d" % slot) for slot in slots}
        self._kept = {slot: fallow.Arena(device.index, "kept of ubatch %d, lane %d" % slot) for slot in slots}
        self._slot = lambda: (current_ubatch(), _lane.get())

    def get_simultaneous(self, *shapes_and_dtypes):
        """Return tensors for work queued on the current stream before the next call in this micro-batch and lane."""
        named = [("tensor %d" % i, *each) for i, each in enumerate(shapes_and_dtypes)]
        return list(self._scratch[self._slot()].get(*named))

    def get_persistent(self, key, shape, dtype, *, zero_init=False):
        """Return the tensor of a key in this micro-batch and lane. Address and contents are kept."""
        region = {"name": str(key), "bytes": math.prod(shape) * dtype.itemsize, "persistent": True, "element_bytes": 1,
                  "init": "zero" if zero_init else "dirty"}
        with self._kept[self._slot()].lease(fallow.Layout([region], str(key))) as lease:
            return lease.torch(region["name"], shape, dtype)

    def lock(self):
        """Forbid growth after warm-up: calls that need more memory raise fallow.Error, which names the tensor."""
        for arena in [*self._scratch.values(), *self._kept.values()]:
            arena.lock()

    def unlock(self):
        for arena in [*self._scratch.values(), *self._kept.values()]:
            arena.unlock()

    def is_locked(self):
        return bool(next(iter(self._scratch.values())).stats()["is_locked"])
