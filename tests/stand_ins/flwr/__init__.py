"""Stand-in: see the README.md beside this folder."""
