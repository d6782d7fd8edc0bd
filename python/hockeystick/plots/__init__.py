"""Pictures of profiles, grids and individual budgets; they need matplotlib."""
