"""Kernel ridge regression from vectors to fields, through their POD coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

LENGTHS = 2.0 ** np.arange(-2, 7)  # of the kernel, in median distances of the inputs
RIDGES = 10.0 ** np.arange(-10, 0)
NEGLIGIBLE = 1e-8  # of the variance of the outputs, that POD leaves out


@dataclass(frozen=True)
class KernelRidge:
    """Kernel ridge regression from inputs to POD coefficients of fields.

    With the kernel k(a, b) = exp(−|a − b|² / 2 length²), K its matrix over the training samples and
    A their coefficients, f(a) = mean + k(a, ·) (K + ridge)⁻¹ A modes.

    Args:
        inputs: of the training samples.
        weights: (K + ridge)⁻¹ A.
        modes: each a field.
        mean: of the fields.
        length: scale of the kernel.
        ridge: added to the diagonal of K.
    """

    inputs: Float[np.ndarray, "s f"]
    weights: Float[np.ndarray, "s r"]
    modes: Float[np.ndarray, "r p o"]
    mean: Float[np.ndarray, "p o"]
    length: float
    ridge: float

    @classmethod
    def fit(
        cls, inputs: Float[np.ndarray, "s f"], fields: Float[np.ndarray, "s p o"]
    ) -> KernelRidge:
        """Length scale and ridge have the least leave-one-out error, each channel counting alike.

        >>> a = np.linspace(0, 1, 12)[:, None]
        >>> found = KernelRidge.fit(a, (a * [1.0, 2.0])[..., None])
        >>> found.predict(np.array([[0.3]])).round(3).ravel(), len(found.modes)
        (array([0.3, 0.6]), 1)
        """
        mean = fields.mean(0)
        deviation = fields.std((0, 1))
        scale = np.where(deviation > 0, deviation, 1.0)
        flat = ((fields - mean) / scale).reshape(len(fields), -1)
        energy, vectors = np.linalg.eigh((flat @ flat.T).astype(np.float64))
        kept = energy > NEGLIGIBLE * max(energy.sum(), 1e-300)
        coefficients = vectors[:, kept] * np.sqrt(energy[kept])
        modes = (vectors[:, kept] / np.sqrt(energy[kept])).T @ flat
        squares = squared_distances(inputs, inputs)
        usual = float(np.sqrt(np.median(squares[~np.eye(len(inputs), dtype=bool)]))) or 1.0
        least, chosen = np.inf, (usual, float(RIDGES[-1]), np.zeros_like(coefficients))
        for length in LENGTHS * usual:
            values, basis = np.linalg.eigh(np.exp(-squares / (2 * length**2)))
            rotated = basis.T @ coefficients
            for ridge in RIDGES:
                inverse = 1 / (np.maximum(values, 0) + ridge)
                weights = basis @ (inverse[:, None] * rotated)
                residuals = weights / (np.square(basis) @ inverse)[:, None]
                error = float(np.square(residuals).sum())
                if error < least:
                    least, chosen = error, (float(length), float(ridge), weights)
        length, ridge, weights = chosen
        shaped = modes.reshape(-1, *mean.shape) * scale
        return cls(inputs, weights, shaped, mean, length, ridge)

    def predict(self, inputs: Float[np.ndarray, "t f"]) -> Float[np.ndarray, "t p o"]:
        """The fields of other inputs."""
        kernel = np.exp(-squared_distances(inputs, self.inputs) / (2 * self.length**2))
        return self.mean + np.tensordot(kernel @ self.weights, self.modes, 1)


def squared_distances(
    a: Float[np.ndarray, "m f"], b: Float[np.ndarray, "n f"]
) -> Float[np.ndarray, "m n"]:
    """|a − b|² of all pairs.

    >>> squared_distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 1.0]]))
    array([[25.,  1.]])
    """
    squares = np.square(a).sum(1)[:, None] + np.square(b).sum(1) - 2 * a @ b.T
    return np.maximum(squares, 0.0)
