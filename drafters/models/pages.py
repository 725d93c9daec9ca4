"""Arrays that take up memory only where they are written, and give it back where they are no longer needed."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Sequence

import numpy as np
import torch


class Pages:
    """Zeros in float32 that can be forgotten in part.

    On Linux the system hands out memory page by page as they are written, and takes it back; elsewhere what was written
    is held as long as the array.

    Attributes:
        array: the zeros.
        shape: of the array; to ask a tensor for it takes long between two forwards.

    Raises:
        OSError, MemoryError: there is no room for them.
    """

    def __init__(self, shape: Sequence[int]):
        self.shape = tuple(shape)
        size = 4 * int(np.prod(shape))
        if sys.platform == "linux" and size:
            # Private, since shared pages are not given back; small, unlike those that NumPy asks for: a large one would
            # be taken up whole by the first number in it.
            self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            flat = np.frombuffer(self._map, np.float32)
        else:
            flat = np.zeros(size // 4, np.float32)
        self.array = torch.from_numpy(flat.reshape(self.shape))

    def forget(self, part: torch.Tensor) -> None:
        """Give back the memory of a contiguous part of :attr:`array`, whose numbers are no longer defined."""
        if sys.platform != "linux" or not part.numel():
            return
        begin = part.data_ptr() - self.array.data_ptr()
        first, end = -(-begin // mmap.PAGESIZE), (begin + part.nbytes) // mmap.PAGESIZE  # whole pages only
        if end > first:
            self._map.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (end - first) * mmap.PAGESIZE)
