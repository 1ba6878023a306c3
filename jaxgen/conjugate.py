"""Conjugate priors: who has one, and that of the Gaussian families."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from jaxgen import arguments
from jaxgen.pytree import pytree
from jaxgen.tracing import is_traced, primal

if TYPE_CHECKING:
    from jax import Array


def proper(estimator: Any) -> Any:
    """An estimator with a proper conjugate prior, NaN in its place under a trace; an error for one that has none.

    It has `log_marginal_likelihood` of statistics, in nats, with the parameters integrated out, and `predictive`: the
    density of one new row, averaged over their posterior.
    """
    if isinstance(estimator, type) or not hasattr(estimator, "log_marginal_likelihood"):
        raise TypeError(
            f"estimator must have a conjugate prior; found {arguments.brief(estimator)}. jaxgen's are GDA with a "
            "prior, BernoulliNB(), MultinomialNB(), CategoricalNB(…), PoissonNB(), and MixedNB of those."
        )
    return estimator.proper()


def _is_positive(matrix: np.ndarray) -> bool:
    """Whether a matrix is symmetric and positive definite, in whatever units its rows are."""
    square = matrix.shape[0] == matrix.shape[1]
    if not square or not np.all(np.diagonal(matrix) > 0):
        return False
    unit = np.sqrt(np.diagonal(matrix))
    matrix = matrix / unit / unit[:, None]
    return np.allclose(matrix, matrix.T, atol=1e-6) and np.linalg.eigvalsh(matrix)[0] > 0


@pytree
@dataclass(frozen=True)
class NormalInverseWishart:
    """The conjugate prior of Gaussian classes: Σ_k ~ inverse Wishart(S₀, ν₀), μ_k ~ N(m₀, Σ_k/κ₀).

    The same for every class (Gelman et al. 2013, section 3.6; Murphy 2012, section 4.6.3). Of diagonal covariances,
    every feature has one of its own, in one dimension (a normal and an inverse χ²); a spherical covariance has one σ²
    for all features, of the same inverse χ²; a shared covariance is one Σ with K means. Proper priors alone are taken.

    Attributes:
        mean: m₀, one number or one for each feature (d,).
        mean_weight: κ₀ > 0, the rows that the prior mean counts for.
        scale: S₀, positive: s for s·I, its diagonal (d,), or a positive definite matrix (d, d); a number or (d,) for
            diagonal covariances, a number for spherical ones. In the units of x, squared.
        degrees: ν₀ > p − 1, or None for p + 2, under which the prior mean of Σ is S₀. p is d for full covariances, and
            1 for diagonal and spherical ones.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x, y = np.array([[0.0], [2.0], [7.0]]), np.array([0, 0, 1])  # one row is enough for a class
        >>> c = jg.fit(jg.QDA(prior=jg.NormalInverseWishart(mean=3.0, scale=2.0)), x, y)
        >>> print(c.density.mean[:, 0].round(3))  # (3 + 0 + 2)/3, (3 + 7)/2
        [1.667 5.   ]
    """

    mean: Array | float = 0.0
    mean_weight: Array | float = 1.0
    scale: Array | float = 1.0
    degrees: Array | float | None = None

    def naive(self) -> NormalInverseWishart:
        """That of each feature by itself."""
        scale = jnp.diagonal(jnp.asarray(self.scale)) if np.ndim(self.scale) == 2 else self.scale
        return dataclasses.replace(self, scale=scale, degrees=None)  # which are those of d features at once

    def from_origin(self, origin: Array) -> NormalInverseWishart:
        """That of features less an origin, (d,)."""
        return dataclasses.replace(self, mean=jnp.asarray(self.mean).astype(origin.dtype) - origin)

    def check(self) -> None:
        """Raise for a value that is out of range; under a trace values are not seen."""
        for name, most in (("mean", 1), ("mean_weight", 0), ("scale", 2), ("degrees", 0)):
            value: Any = getattr(self, name)
            if value is None and name == "degrees":
                continue
            name = f"NormalInverseWishart.{name}"
            if value is None or isinstance(value, (list, tuple)):
                raise TypeError(f"{name} must be a number or an array; found {value!r}. Give it as np.array(…).")
            array = arguments.as_array(name, value)
            if array.ndim > most:
                raise ValueError(
                    f"{name} must have {('no axes', 'one axis', 'two axes')[most]} at the most; found "
                    f"shape {array.shape}. To try several at once, jax.vmap over the prior."
                )
            array = primal(array)
            if is_traced(array):
                continue
            array = np.asarray(array)
            arguments.check_range(name, array, "", least=-math.inf)
            if name.endswith("scale") and array.ndim == 2:
                if not _is_positive(array.astype(float)):
                    raise ValueError(f"{name} must be symmetric and positive definite, as a matrix; found {array}.")
            elif not name.endswith(".mean") and not (array > 0).all():
                raise ValueError(f"{name} must be positive; found {array}.")

    def check_for(self, num_features: int, covariance: str) -> None:
        """Raise for a shape that does not fit the features or the form, and for degrees that are too few for them."""
        d, axes = num_features, {"full": 2, "diagonal": 1, "spherical": 0}[covariance]
        for name, shapes in (("mean", [(), (d,)]), ("scale", [(), (d,), (d, d)][: axes + 1])):
            shape = np.shape(getattr(self, name))
            if shape not in shapes:
                raise ValueError(
                    f"NormalInverseWishart.{name} must have shape {' or '.join(map(str, shapes))} for {covariance} "
                    f"covariances of {d} features; found {shape}."
                )
        least = d - 1 if covariance == "full" else 0
        if self.degrees is not None and not is_traced(self.degrees) and not float(self.degrees) > least:
            raise ValueError(
                f"NormalInverseWishart.degrees must be more than {least} for {covariance} covariances of {d} features; "
                f"found {float(self.degrees):g}. None takes {least + 3}."
            )
