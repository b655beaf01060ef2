"""Pages that nngkit serves to browsers."""
