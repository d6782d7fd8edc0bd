"""All descriptions by name, for the rooms that use many of them; each is in a file of its own kind."""

from .continuous import Gaussian, Laplace
from .curve import DeclaredProfile
from .discrete import DiscreteGaussian, DiscreteLaplace
from .dpsgd import DPSGD
from .exponential import ExponentialMechanism
from .finite import FinitePair
from .groups import Group
from .losses import PrivacyLoss
from .mixtures import Mixture, MixtureOfGaussians
from .renyi import ZCDP, RenyiCurve
from .repetitions import Repetitions
from .responses import ApproximateDP, PureDP, RandomizedResponse
from .sampled import PoissonSampled, WithoutReplacement, WithReplacement
from .selection import PrivateSelection
from .skellam import Skellam
from .steps import Composable, Mechanism, Process, Step, composition, set_fields, shift_of
from .truncated import TruncatedPoissonSampled
from .users import UserLevel
