"""Known providers: rounds taken in, states, merged views. Pure."""
