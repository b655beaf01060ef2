"""Configuration of the commands that run as daemons: flag, else variable, else TOML file, else default.

===============  ==========================================================================================
command_parser   the parser of a command; a daemon's has `--config`, `--check`, `--print-config`, `--log-level`,
                 `--log-format`
settings         what an option is called in a file and in the environment; read from its declaration
toml_file        a file, with the line of each key
resolution       which value holds, and where it comes from
showing          what `--check` and `--print-config` print
reloading        SIGHUP
starting         all of it, for the entry point
===============  ==========================================================================================

Knows no option: options are declared where a command adds them, and nowhere else.
"""
