"""Generative classifiers as pure functions on JAX.

A room is loaded with the first of its names that is used: to fit LDA takes half of them. `__init__.pyi` says the same
to type checkers.
"""

from importlib import import_module
from typing import Any

_ROOMS = {
    "ascent": ("EMReport",),
    "bernoulli": ("Bernoulli", "BernoulliNB"),
    "categorical": ("Categorical", "CategoricalNB"),
    "classifier": ("Classifier",),
    "classify": ("log_evidence", "log_joint", "log_likelihood", "log_posterior", "predict"),
    "combining": ("merge", "scale", "subtract"),
    "compilation_cache": ("enable_compilation_cache",),
    "complement": ("ComplementNB",),
    "compound": ("DirichletMultinomial", "NegativeBinomial"),
    "conjugate": ("NormalInverseWishart",),
    "containers": ("pad_rows",),
    "diagonal": ("DiagonalGaussian",),
    "discriminant": ("GDA",),
    "estimator": ("GenerativeEstimator",),
    "fitting": ("estimate", "fit"),
    "gaussian": ("Gaussian",),
    "imputation": ("impute",),
    "linear": ("LinearClassifier",),
    "linear_form": ("to_linear",),
    "logistic": ("LogisticRegression", "train"),
    "minibatches": ("train_batches",),
    "mixed": ("Mixed",),
    "mixed_naive_bayes": ("MixedNB",),
    "multinomial": ("Multinomial", "MultinomialNB"),
    "named_discriminants": ("LDA", "QDA", "GaussianNB"),
    "optimum": ("Report",),
    "outliers": ("mahalanobis", "relative_mahalanobis"),
    "poisson": ("Poisson", "PoissonNB"),
    "posterior_predictive": ("log_marginal_likelihood", "predictive"),
    "replicates": ("bootstrap",),
    "resampling": ("CrossValidation", "cross_validate"),
    "sampling": ("sample",),
    "shrinkage": ("ledoit_wolf",),
    "student": ("DiagonalStudentT", "StudentT"),
    "unlabelled": ("fit_em", "train_em"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [*_ROOM_OF, "linear_regression", "metrics", "platform"]  # pyright: ignore[reportUnsupportedDunderAll]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """A public name, from its room."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = import_module(f"{__name__}.{_ROOM_OF.get(name, name)}")
    value = globals()[name] = getattr(room, name) if name in _ROOM_OF else room
    return value


def __dir__() -> list[str]:
    return __all__
