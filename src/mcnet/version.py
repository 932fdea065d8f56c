"""The version of mcnet, written once."""

__version__ = "0.2.0"
