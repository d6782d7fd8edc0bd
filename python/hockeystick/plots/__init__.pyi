from .gdp import plot_gdp as plot_gdp
from .individual import plot_active as plot_active
from .individual import plot_individual as plot_individual
from .profiles import plot_grid as plot_grid
from .profiles import plot_profile as plot_profile
from .profiles import plot_truncation as plot_truncation
