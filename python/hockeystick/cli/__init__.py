"""The command `hockeystick`."""
