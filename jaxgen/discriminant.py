"""Gaussian discriminant analysis: LDA, QDA, their diagonal and spherical forms, Gaussian naive Bayes.

Six forms: Σ full, diagonal or spherical, shared by the classes or one for each.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import inputs
from jaxgen.estimator import GenerativeEstimator
from jaxgen.gaussian import DiagonalGaussian, Gaussian
from jaxgen.moments import Moments, resolved_variance
from jaxgen.numerics import cholesky_or_nan, nonnegative_or_nan, safe_divide, with_diagonal

if TYPE_CHECKING:
    from typing import Any

    from jax import Array
    from jaxtyping import Float

    from jaxgen.inputs import Domain
    from jaxgen.labels import Labels

Covariance: TypeAlias = Literal["full", "diagonal", "spherical"]


@partial(jax.tree_util.register_dataclass, data_fields=("ridge", "prior_alpha"), meta_fields=("covariance", "shared"))
@dataclass(frozen=True)
class GDA(GenerativeEstimator[Moments, Gaussian | DiagonalGaussian]):
    """Gaussian discriminant analysis by maximum likelihood.

        μ_k = Σ_i r_ik x_i / N_k,    Σ_k = Σ_i r_ik (x_i − μ_k)(x_i − μ_k)ᵀ / N_k + ridge·diag(v)

    and for a shared covariance the mean of the Σ_k weighted by N_k (CS229 notes, section 4.1). v is the pooled variance
    of each feature within the classes, so that a ridge means the same in any units; a feature that never varies takes
    the mean of the others. A class without data takes the pooled mean and covariance. Where float32 cannot tell a
    ridge from zero beside a large variance, the variance is raised by its own rounding error instead.

    Attributes:
        covariance: "full", "diagonal" (independent features) or "spherical" (one variance for all features).
        shared: one covariance for all classes (linear log odds) instead of one for each (quadratic).
        ridge: added to each variance, in units of the pooled one. 0 is the exact maximum likelihood estimate.
        prior_alpha: pseudo-count of each class in the prior.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x = np.array([[0.0], [2.0], [10.0], [14.0]])
        >>> c = jg.fit(jg.GDA("diagonal", shared=False, ridge=0.0), x, np.array([0, 0, 1, 1]))
        >>> c.density.mean.tolist(), c.density.scale.tolist()
        ([[1.0], [12.0]], [[1.0], [2.0]])
    """

    covariance: Covariance = dataclasses.field(default="full", metadata={"static": True})
    shared: bool = dataclasses.field(default=True, metadata={"static": True})
    ridge: Array | float = 1e-6

    @property
    def domain(self) -> Domain:
        """Finite numbers."""
        return inputs.FINITE

    def check(self) -> None:
        """Raise for a hyperparameter that is out of range."""
        super().check()
        if self.covariance not in ("full", "diagonal", "spherical"):
            raise ValueError(f"GDA.covariance must be 'full', 'diagonal' or 'spherical'; found {self.covariance!r}.")
        if not isinstance(self.shared, bool):
            raise TypeError(f"GDA.shared must be True or False, a Python bool; found {self.shared!r}.")

    def accepts(self, statistics: Any) -> bool:
        """Whether these are moments with a scatter of this form."""
        if not isinstance(statistics, Moments):
            return False
        covariances = 1 if self.shared else statistics.class_weight.high.shape[0]
        return statistics.scatter.ndim == (3 if self.covariance == "full" else 2) and (
            statistics.scatter.shape[0] == covariances
        )

    @property
    def sorts_by_class(self) -> bool:
        """Products of matrices are taken of one class at a time."""
        return self.covariance == "full" and not self.shared

    def summarise(self, x: Float[Array, "n d"], labels: Labels) -> Moments:
        """Weight, mean and centred scatter of a block of rows."""
        return Moments.of(x, labels, full=self.covariance == "full", shared=self.shared)

    def density(self, statistics: Moments) -> Gaussian | DiagonalGaussian:
        """Maximum likelihood, with the ridge."""
        class_weight, mean, scatter = statistics.class_weight.value, statistics.mean.value, statistics.scatter
        total = jnp.sum(class_weight)
        pooled_mean = safe_divide(jnp.sum(class_weight[:, None] * mean, axis=0), total)
        mean = jnp.where(class_weight[:, None] > 0, mean, pooled_mean[None])
        pooled = safe_divide(jnp.sum(scatter, axis=0, keepdims=True), total)
        covariance = pooled
        if not self.shared:
            covariance = safe_divide(scatter, class_weight.reshape(-1, *(1,) * (scatter.ndim - 1)), pooled)
        ridge = nonnegative_or_nan(self.ridge, mean.dtype) * _ridge_unit(resolved_variance(pooled, mean)[0])
        variance = resolved_variance(covariance, mean) + ridge[None]
        if self.covariance == "full":
            regularised = jnp.asarray(self.ridge) > 0
            return Gaussian(mean, cholesky_or_nan(with_diagonal(covariance, variance), regularised))
        if self.covariance == "spherical":
            variance = jnp.mean(variance, axis=-1, keepdims=True)
        return DiagonalGaussian(mean, jnp.sqrt(jnp.where(variance > 0, variance, jnp.nan)))

    def explain(self, density: Gaussian | DiagonalGaussian) -> str:
        """Which class has a singular covariance, and the remedy."""
        factor = density.cholesky if isinstance(density, Gaussian) else density.scale
        if np.isinf(np.asarray(factor)).any():
            return f"a covariance overflows {factor.dtype}. Rescale the features, or compute in float64."
        singular = np.isnan(np.asarray(factor)).reshape(factor.shape[0], -1).any(axis=1)
        if not singular.any():
            return super().explain(density)
        whose = "the shared covariance" if self.shared else f"the covariance of class {int(np.argmax(singular))}"
        return (
            f"{whose} is singular in {factor.dtype} with ridge={float(self.ridge):g}: its rows are too few, or a "
            "feature is constant or a combination of others. Raise ridge, use covariance='diagonal' or shared=True, "
            "drop the feature, or compute in float64."
        )


def LDA(ridge: float = 1e-6, prior_alpha: float = 0.0) -> GDA:  # noqa: N802
    """Linear discriminant analysis: GDA with one full covariance shared by the classes."""
    return GDA("full", shared=True, ridge=ridge, prior_alpha=prior_alpha)


def QDA(ridge: float = 1e-6, prior_alpha: float = 0.0) -> GDA:  # noqa: N802
    """Quadratic discriminant analysis: GDA with a full covariance for each class."""
    return GDA("full", shared=False, ridge=ridge, prior_alpha=prior_alpha)


def GaussianNB(ridge: float = 1e-6, prior_alpha: float = 0.0) -> GDA:  # noqa: N802
    """Gaussian naive Bayes: GDA with a diagonal covariance for each class."""
    return GDA("diagonal", shared=False, ridge=ridge, prior_alpha=prior_alpha)


def _ridge_unit(variance: Float[Array, " d"]) -> Float[Array, " d"]:
    """The unit of the ridge for each feature: its pooled variance; for a constant one the mean of the others, or 1."""
    varies = variance > 0
    others = safe_divide(jnp.sum(variance), jnp.sum(varies.astype(variance.dtype)), 1.0)
    return jnp.where(varies, variance, others)
