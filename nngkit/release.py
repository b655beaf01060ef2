"""The release of nngkit, for rooms that tell it. Imports nothing."""

__version__ = "0.1.0"
