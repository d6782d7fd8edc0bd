"""All descriptions by name, for the rooms that use many of them; each is in a file of its own kind."""

from .dpsgd import DPSGD
from .given import DeclaredProfile, FinitePair, PrivacyLoss
from .mixtures import Mixture, MixtureOfGaussians
from .numeric import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from .renyi import ZCDP, RenyiCurve
from .responses import ApproximateDP, ExponentialMechanism, PureDP, RandomizedResponse
from .runs import Dominated
from .sampled import PoissonSampled, WithoutReplacement, WithReplacement
from .selection import PrivateSelection, Repetitions
from .skellam import Skellam
from .steps import Composable, Mechanism, Process, Step, composition, set_fields, shift_of
from .truncated import TruncatedPoissonSampled
from .users import UserLevel
from .whole import Group
