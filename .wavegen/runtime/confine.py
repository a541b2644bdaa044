"""Starts a shell on a machine without namespaces, fenced by Landlock: `.wavegen/bin/landlock-SHELL` runs it.

    python3 -I -S confine.py SETTING... -- [--project DIR] [--print | --print-fence] [--report FD] [--connect-to ...] [--] [COMMAND [ARGUMENT...]]

This file also runs where python3 is too old, to say so.
"""

import os
import sys

if sys.version_info < (3, 10):  # noqa: UP036
    sys.stderr.write("wavegen: error: python3 is older than 3.10 (install a newer one)\n")
    sys.exit(125)

# -I leaves the script's own directory out. Nothing is written there: what is compiled could be exchanged inside.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

import confined  # noqa: E402

confined.main(sys.argv[1:])
