"""The launcher: rules and this machine become mounts, a network and a process. Standard library only, Python 3.9 and newer.

It runs as `python3 -I -S` from a rendered project, from the Nix store and from the installed package alike, so it imports nothing of
wavegen and nothing that is slow to import (no dataclasses, enum, re, typing, json before the command runs). Everybody may import it.
"""
