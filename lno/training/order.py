"""The order of samples in an epoch: those of similar size share a batch, which pads little.

An epoch is a random permutation of the samples. Where they differ in size, the samples within a
window of this order are sorted by size and cut into batches, and the batches of a window are put
into a random order again. So each sample comes once in an epoch, the batches of different epochs
differ, and the order depends on the seed and the epoch alone.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

WINDOW = 32  # batches whose samples are sorted: more pad less, fewer mix more


def epoch_order(
    random: np.random.Generator,
    count: int,
    batch: int,
    sizes: Int[np.ndarray, " s"] | None = None,
) -> Int[np.ndarray, " count"]:
    """Indices of samples, batch after batch; the last one may be smaller.

    Args:
        random: decides the order.
        count: the samples of an epoch; a multiple of s where each comes several times.
        batch: samples in a batch.
        sizes: of the samples; None: all are equal.

    >>> sizes = np.array([10, 99, 11, 97, 12, 98, 50])
    >>> order = epoch_order(np.random.default_rng(0), 7, 3, sizes)
    >>> sorted(order.tolist()), [sorted(sizes[b].tolist()) for b in np.split(order, (3, 6))]
    ([0, 1, 2, 3, 4, 5, 6], [[10, 11, 12], [50, 97, 98], [99]])
    """
    order = random.permutation(count)
    if sizes is None:
        return order
    order = order % len(sizes)
    whole = count - count % batch  # what remains is a smaller batch, of any samples
    for start in range(0, whole, WINDOW * batch):
        window = order[start : min(start + WINDOW * batch, whole)]
        batches = window[np.argsort(sizes[window], kind="stable")].reshape(-1, batch)
        window[:] = batches[random.permutation(len(batches))].ravel()
    return order
