"""Descriptions of what is released: frozen and cheap, composed with * and +; and their dominating pairs."""

from .._base.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "adjacency": "ADJACENCIES",
        "continuous": "Gaussian Laplace",
        "cyclic": "cyclic_poisson",
        "discrete": "DiscreteGaussian DiscreteLaplace",
        "dpsgd": "DPSGD dp_sgd",
        "groups": "Group",
        "mixtures": "Mixture MixtureOfGaussians",
        "renyi": "RenyiCurve ZCDP",
        "responses": "ApproximateDP PureDP RandomizedResponse",
        "sampled": "PoissonSampled WithReplacement WithoutReplacement",
        "serialise": "from_dict to_dict",
        "steps": "Composable Mechanism Process Step",
        "truncated": "TruncatedPoissonSampled",
        "users": "UserLevel",
    },
)
