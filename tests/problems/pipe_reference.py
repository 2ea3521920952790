"""Flow through a pipe by scikit-fem: its elements, assembly and numbering, and a sparse solver."""

import numpy as np
import skfem
from scipy.sparse.linalg import spsolve
from skfem.helpers import ddot, div, dot, grad, mul

from lno.problems import Pipe
from lno.problems.pipe import GRAD_DIV

ELEMENTS = {
    "quadrilaterals": (
        skfem.MeshQuad, skfem.MeshQuad2, skfem.ElementQuad2(), skfem.ElementQuad1(),
    ),
    "triangles": (skfem.MeshTri, skfem.MeshTri2, skfem.ElementTriP2(), skfem.ElementTriP1()),
}  # fmt: skip


def reference_flow(problem: Pipe, nodes: np.ndarray, kind: str) -> np.ndarray:
    """Velocities (2, m, m) at the nodes (m, m, 2) of a mesh, by Q2–Q1 or P2–P1 elements."""
    straight, curved, velocity, pressure = ELEMENTS[kind]
    n, last = problem.elements, 2 * problem.elements
    lines = np.linspace(0, 1, n + 1)
    flat = curved.from_mesh(straight.init_tensor(lines, lines))

    def on_grid(points):
        return tuple(np.rint(points * last).astype(int))

    i, j = on_grid(skfem.Basis(flat, skfem.ElementVector(velocity)).doflocs)
    mesh = curved(nodes[on_grid(flat.doflocs)].T, flat.t)
    basis = skfem.Basis(mesh, skfem.ElementVector(velocity), intorder=7)
    other = basis.with_element(pressure)

    @skfem.BilinearForm
    def viscous(u, v, w):
        return problem.viscosity * ddot(grad(u), grad(v)) + GRAD_DIV * div(u) * div(v)

    @skfem.BilinearForm
    def divergence(u, q, w):
        return -div(u) * q

    @skfem.BilinearForm
    def convection(u, v, w):
        return dot(mul(grad(u), w["now"]) + mul(grad(w["now"]), u), v)

    @skfem.LinearForm
    def advection(v, w):
        return dot(mul(grad(w["now"]), w["now"]), v)

    a, b = viscous.assemble(basis), divergence.assemble(basis, other)
    horizontal = np.zeros(basis.N, bool)
    for dofs in (basis.nodal_dofs, basis.facet_dofs, basis.interior_dofs):
        horizontal[dofs[:1].ravel()] = True
    x, (u, p) = np.zeros(basis.N + other.N), np.split(np.arange(basis.N + other.N), [basis.N])
    inlet = horizontal & (i == 0)
    x[u[inlet]] = 0.25 - problem.across()[j[inlet]] ** 2
    x[u[(j == 0) | (j == last)]] = 0
    free = np.append((i > 0) & (j > 0) & (j < last), np.ones(other.N, bool))
    for step in range(8):  # the first one is the Stokes flow
        c, load = 0 * a, np.zeros(basis.N)
        if step:
            now = basis.interpolate(x[u])
            c, load = convection.assemble(basis, now=now), advection.assemble(basis, now=now)
        residual = np.append(a @ x[u] + load + b.T @ x[p], b @ x[u])[free]
        if step and np.linalg.norm(residual) < 1e-13:
            break
        matrix = skfem.bmat([[a + c, b.T], [b, None]], "csc")[free][:, free]
        x[free] -= spsolve(matrix, residual)
    assert np.linalg.norm(residual) < 1e-12
    flow = np.empty((2, last + 1, last + 1))
    for k, part in enumerate((horizontal, ~horizontal)):
        flow[k, i[part], j[part]] = x[u[part]]
    return flow
