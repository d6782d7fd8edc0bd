"""Client-level privacy of federated training with Flower, accounted for by hockeystick."""

from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, SamplingMethod
from hockeystick.interop.flower import HockeystickAccountant

accountant = HockeystickAccountant(
    PrivacyConfig(
        target_delta=1e-5,
        population_size=10_000,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        sampling_method=SamplingMethod.NO_AMPLIFICATION,  # what Flower's strategies ask for
        max_epsilon=8.0,
    )
)
# A strategy does the rest by itself:
#     DifferentialPrivacyServerSideFixedClipping(
#         FedAvg(...), noise_multiplier=4.0, clipping_norm=1.0, num_sampled_clients=100, accountant=accountant
#     )
# namely, in every round:
release = GaussianPrivacyEvent(noise_multiplier=4.0, sample_size=100, population_size=10_000)
while not accountant.would_exceed(release):
    accountant.compose(release)

spent = accountant.get_privacy_spent()
print(f"{spent.num_releases} rounds, epsilon = {spent.epsilon:.6f} at delta = {spent.delta}")
print(accountant.report().statement())
