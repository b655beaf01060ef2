"""The command lines of `cat`, `nngcat` and `nanocat`."""
