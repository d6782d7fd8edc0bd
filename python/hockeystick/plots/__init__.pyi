from .pictures import plot_active as plot_active
from .pictures import plot_gdp as plot_gdp
from .pictures import plot_grid as plot_grid
from .pictures import plot_individual as plot_individual
from .pictures import plot_profile as plot_profile
from .pictures import plot_truncation as plot_truncation
