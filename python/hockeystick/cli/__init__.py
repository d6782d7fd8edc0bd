"""The command `hockeystick`: one module for each of its commands, imported when it is asked for."""
