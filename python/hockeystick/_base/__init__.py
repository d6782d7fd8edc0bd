"""What every room needs: checks of arguments, stores, seeds, progress, executors, bounds, one-dimensional search."""

PACKAGE = __name__.partition(".")[0]
