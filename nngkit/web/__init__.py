"""The pages that nngkit serves to a browser."""
