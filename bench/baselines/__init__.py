"""The accountant's mathematics in plain NumPy/SciPy.

Nothing here imports hockeystick: the tests use these modules as an independent oracle, the benchmarks as
the speed to beat. Rounding errors are not bounded (a few ulp per second difference, divided by the step),
so "upper" and "lower" hold up to about 1e-16 / step.
"""
