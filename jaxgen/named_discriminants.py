"""The forms of Gaussian discriminant analysis that have a name: LDA, QDA and Gaussian naive Bayes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxgen.discriminant import GDA

if TYPE_CHECKING:
    from jax import Array

    from jaxgen.conjugate import NormalInverseWishart
    from jaxgen.discriminant import Target


def LDA(  # noqa: N802
    ridge: Array | float = 1e-6,
    prior_alpha: Array | float = 0.0,
    *,
    pooling: Array | float = 0.0,
    shrinkage: Array | float = 0.0,
    target: Target = "spherical",
    prior: NormalInverseWishart | None = None,
) -> GDA:
    """Linear discriminant analysis: GDA with one full covariance shared by the classes.

    The arguments are the fields of `GDA` of the same names, but for `covariance` and `shared`, which the name decides;
    what is out of range is refused by `fit`.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x, y = np.array([[0.0], [2.0], [3.0], [5.0]]), np.array([0, 0, 1, 1])
        >>> c = jg.fit(jg.LDA(), x, y)
        >>> print(f"{jg.to_linear(c).weights[0, 1]:.3f}")  # Σ⁻¹ = 1 times the mean 4 about that of both means, 2.5
        1.500
    """
    return GDA(
        "full",
        shared=True,
        ridge=ridge,
        pooling=pooling,
        shrinkage=shrinkage,
        target=target,
        prior=prior,
        prior_alpha=prior_alpha,
    )


def QDA(  # noqa: N802
    ridge: Array | float = 1e-6,
    prior_alpha: Array | float = 0.0,
    *,
    pooling: Array | float = 0.0,
    shrinkage: Array | float = 0.0,
    target: Target = "spherical",
    prior: NormalInverseWishart | None = None,
) -> GDA:
    """Quadratic discriminant analysis: GDA with a full covariance for each class.

    The arguments are the fields of `GDA` of the same names, but for `covariance` and `shared`, which the name decides;
    what is out of range is refused by `fit`.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x, y = np.array([[-1.0], [1.0], [-3.0], [3.0]]), np.array([0, 0, 1, 1])
        >>> jg.predict(jg.fit(jg.QDA(), x, y), np.array([[-4.0], [0.5], [4.0]])).tolist()  # the wider class is outside
        [1, 0, 1]
    """
    return GDA(
        "full",
        shared=False,
        ridge=ridge,
        pooling=pooling,
        shrinkage=shrinkage,
        target=target,
        prior=prior,
        prior_alpha=prior_alpha,
    )


def GaussianNB(  # noqa: N802
    ridge: Array | float = 1e-6,
    prior_alpha: Array | float = 0.0,
    *,
    pooling: Array | float = 0.0,
    shrinkage: Array | float = 0.0,
    target: Target = "spherical",
    prior: NormalInverseWishart | None = None,
) -> GDA:
    """Gaussian naive Bayes: GDA with a diagonal covariance for each class.

    The arguments are the fields of `GDA` of the same names, but for `covariance` and `shared`, which the name decides;
    what is out of range is refused by `fit`.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x, y = np.array([[-1.0, 0.0], [1.0, 4.0], [-3.0, 0.0], [3.0, 2.0]]), np.array([0, 0, 1, 1])
        >>> jg.fit(jg.GaussianNB(ridge=0.0), x, y).density.scale.tolist()
        [[1.0, 2.0], [3.0, 1.0]]
    """
    return GDA(
        "diagonal",
        shared=False,
        ridge=ridge,
        pooling=pooling,
        shrinkage=shrinkage,
        target=target,
        prior=prior,
        prior_alpha=prior_alpha,
    )
