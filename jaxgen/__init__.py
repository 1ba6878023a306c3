"""Generative classifiers as pure functions on JAX."""

from jaxgen import linear_regression, metrics
from jaxgen.bernoulli import Bernoulli, BernoulliNB
from jaxgen.categorical import Categorical, CategoricalNB
from jaxgen.classify import Classifier, log_evidence, log_joint, log_likelihood, log_posterior, predict
from jaxgen.combining import merge, scale, subtract
from jaxgen.compilation_cache import enable_compilation_cache
from jaxgen.complement import ComplementNB
from jaxgen.compound import DirichletMultinomial, NegativeBinomial
from jaxgen.conjugate import NormalInverseWishart
from jaxgen.containers import pad_rows
from jaxgen.diagonal import DiagonalGaussian
from jaxgen.discriminant import GDA, LDA, QDA, GaussianNB
from jaxgen.em import EMReport
from jaxgen.estimator import GenerativeEstimator
from jaxgen.fitting import estimate, fit
from jaxgen.gaussian import Gaussian
from jaxgen.imputation import impute
from jaxgen.linear import LinearClassifier, to_linear
from jaxgen.logistic import LogisticRegression, Report, train
from jaxgen.minibatches import train_batches
from jaxgen.mixed import Mixed
from jaxgen.mixed_naive_bayes import MixedNB
from jaxgen.multinomial import Multinomial, MultinomialNB
from jaxgen.outliers import mahalanobis, relative_mahalanobis
from jaxgen.poisson import Poisson, PoissonNB
from jaxgen.predictive import log_marginal_likelihood, predictive
from jaxgen.replicates import bootstrap
from jaxgen.resampling import CrossValidation, cross_validate
from jaxgen.sampling import sample
from jaxgen.shrinkage import ledoit_wolf
from jaxgen.student import DiagonalStudentT, StudentT
from jaxgen.unlabelled import fit_em, train_em

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
    "DiagonalStudentT",
    "DirichletMultinomial",
    "EMReport",
    "Gaussian",
    "GaussianNB",
    "GenerativeEstimator",
    "LinearClassifier",
    "LogisticRegression",
    "Mixed",
    "MixedNB",
    "Multinomial",
    "MultinomialNB",
    "NegativeBinomial",
    "NormalInverseWishart",
    "Poisson",
    "PoissonNB",
    "Report",
    "StudentT",
    "bootstrap",
    "cross_validate",
    "enable_compilation_cache",
    "estimate",
    "fit",
    "fit_em",
    "impute",
    "ledoit_wolf",
    "linear_regression",
    "log_evidence",
    "log_joint",
    "log_likelihood",
    "log_marginal_likelihood",
    "log_posterior",
    "mahalanobis",
    "merge",
    "metrics",
    "pad_rows",
    "predict",
    "predictive",
    "relative_mahalanobis",
    "sample",
    "scale",
    "subtract",
    "to_linear",
    "train",
    "train_batches",
    "train_em",
]

__version__ = "0.1.0"


def __dir__() -> list[str]:
    return __all__
