"""Generative classifiers as pure functions on JAX."""

from jaxgen import linear_regression, metrics
from jaxgen.bernoulli import Bernoulli, BernoulliNB
from jaxgen.categorical import Categorical, CategoricalNB
from jaxgen.classify import Classifier, log_evidence, log_joint, log_likelihood, log_posterior, predict
from jaxgen.compilation_cache import enable_compilation_cache
from jaxgen.complement import ComplementNB
from jaxgen.containers import pad_rows
from jaxgen.discriminant import GDA, LDA, QDA, GaussianNB
from jaxgen.estimator import GenerativeEstimator
from jaxgen.fitting import estimate, fit, merge, subtract
from jaxgen.gaussian import DiagonalGaussian, Gaussian
from jaxgen.linear import LinearClassifier, to_linear
from jaxgen.logistic import LogisticRegression, Report, train
from jaxgen.minibatches import train_batches
from jaxgen.mixed import Mixed, MixedNB
from jaxgen.multinomial import Multinomial, MultinomialNB
from jaxgen.poisson import Poisson, PoissonNB
from jaxgen.resampling import CrossValidation, cross_validate
from jaxgen.sampling import sample

__all__ = [
    "GDA",
    "LDA",
    "QDA",
    "Bernoulli",
    "BernoulliNB",
    "Categorical",
    "CategoricalNB",
    "Classifier",
    "ComplementNB",
    "CrossValidation",
    "DiagonalGaussian",
    "Gaussian",
    "GaussianNB",
    "GenerativeEstimator",
    "LinearClassifier",
    "LogisticRegression",
    "Mixed",
    "MixedNB",
    "Multinomial",
    "MultinomialNB",
    "Poisson",
    "PoissonNB",
    "Report",
    "cross_validate",
    "enable_compilation_cache",
    "estimate",
    "fit",
    "linear_regression",
    "log_evidence",
    "log_joint",
    "log_likelihood",
    "log_posterior",
    "merge",
    "metrics",
    "pad_rows",
    "predict",
    "sample",
    "subtract",
    "to_linear",
    "train",
    "train_batches",
]

__version__ = "0.1.0"
