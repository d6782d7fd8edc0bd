"""Benchmarks of hockeystick, and the plain NumPy/SciPy maths they are measured against."""
