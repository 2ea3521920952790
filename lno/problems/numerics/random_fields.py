"""Gaussian random fields on the unit square, N(0, τ^{2α−2} (−Δ + τ²)^{−α}), without their mean.

The Laplacian has Neumann (zero-flux) or periodic boundaries, so a field is a sum of cosines
or of plane waves with independent coefficients: white noise times the amplitude of each mode.
Double precision on the CPU: a seed gives the same field whatever device solves for it, and rounding
does not decide the sign of a field.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy import fft


def neumann_field(
    random: np.random.Generator, n: int, alpha: float, tau: float
) -> Float[np.ndarray, "{n} {n}"]:
    """A field with zero flux through the boundary, at the midpoints (i + ½)/n of n × n cells.

    The mode 2 cos(πk₁x) cos(πk₂y) has the amplitude τ^{α−1} (π²|k|² + τ²)^{−α/2}.

    >>> neumann_field(np.random.default_rng(0), 64, alpha=2.0, tau=3.0).shape
    (64, 64)
    """
    noise = random.standard_normal((n, n))
    return fft.idctn(_neumann_amplitude(n, alpha, tau) * noise, norm="ortho")


def periodic_field(
    random: np.random.Generator, n: int, alpha: float, tau: float
) -> Float[np.ndarray, "{n} {n}"]:
    """A periodic field, at the points i/n.

    The mode exp(2πi k·x) has the amplitude τ^{α−1} (4π²|k|² + τ²)^{−α/2}.

    >>> w = periodic_field(np.random.default_rng(0), 64, alpha=2.5, tau=7.0)
    >>> w.shape, bool(abs(w.mean()) < 1e-15)
    ((64, 64), True)
    """
    # The transform of real white noise is Hermitian, which makes the field real.
    noise = fft.rfft2(random.standard_normal((n, n)))
    return fft.irfft2(_periodic_amplitude(n, alpha, tau) * noise, s=(n, n))


@lru_cache(maxsize=8)
def _neumann_amplitude(n: int, alpha: float, tau: float) -> np.ndarray:
    k = np.pi * np.arange(n)
    return _amplitude(n, np.add.outer(k**2, k**2), alpha, tau)


@lru_cache(maxsize=8)
def _periodic_amplitude(n: int, alpha: float, tau: float) -> np.ndarray:
    kx, ky = (2 * np.pi * k for k in (fft.fftfreq(n, 1 / n), fft.rfftfreq(n, 1 / n)))
    return _amplitude(n, np.add.outer(kx**2, ky**2), alpha, tau)


def _amplitude(n: int, laplacian: np.ndarray, alpha: float, tau: float) -> np.ndarray:
    """Amplitudes of the modes with these eigenvalues of −Δ, and zero for the mean.

    Unitary transforms have modes of unit norm on the grid. Times n they have unit mean square.
    """
    amplitude = n * tau ** (alpha - 1) * (laplacian + tau**2) ** (-alpha / 2)
    amplitude[0, 0] = 0
    amplitude.flags.writeable = False
    return amplitude
