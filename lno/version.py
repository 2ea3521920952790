"""The version, in a file of its own so that every layer may read it."""

__version__ = "0.2.0"
