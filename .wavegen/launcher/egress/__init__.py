"""The way out of a shell that filters its network. `rules` decides; nobody else does.

`names` and `addresses` say what a host is, `rules` whether it may be reached. `serve` answers, with `dns`, `protocols`, `connect`, `loop`, `log`
and `messages`: these are imported once the command was started, as `socket` and `json` are slow to import.
"""
