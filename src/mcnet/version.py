"""The version of mcnet, written once."""

__version__ = "0.1.0"
