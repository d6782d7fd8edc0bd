"""Stand-in: a configuration that makes an accountant."""

from dataclasses import dataclass

import dp_accounting


@dataclass(kw_only=True)
class PldAccountantConfig:
    value_discretization_interval: float = 1e-4

    def create_accountant(self) -> dp_accounting.PrivacyAccountant:
        return dp_accounting.pld.PLDAccountant(
            value_discretization_interval=self.value_discretization_interval
        )
