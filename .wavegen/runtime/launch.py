"""Starts a shell whose network is filtered by name: `.wavegen/bin/SHELL` runs it in bwrap's place.

    python3 -I -S launch.py --python A[:B...] --state DIR ... -- BWRAP ARGUMENT... -- COMMAND ARGUMENT...
    python3 -I -S launch.py --python A[:B...] --state DIR ... --channel PATH --user UID ... -- ENGINE run ARGUMENT... COMMAND ARGUMENT...

The second form is a container's: launch_container.py.

This file is read anew at each start, so it is short: the rest is in modules whose compiled form is kept in the DIR of --cache.
"""

import os
import sys

# The launcher's own words, not the command's.
own = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else []

if sys.version_info < (3, 10):
    # The system's is too old; perhaps another is not.
    rest = own[own.index("--python") + 1].split(":")[1:] if "--python" in own else []
    if rest:
        at = sys.argv.index("--python") + 1
        os.execv(rest[0], [rest[0], "-I", "-S", sys.argv[0]] + sys.argv[1:at] + [":".join(rest)] + sys.argv[at + 1 :])
    sys.stderr.write("wavegen: error: python3 is older than 3.10 (install a newer one, or add python3 to the packages)\n")
    sys.exit(125)

# -I leaves the script's own directory out. Nothing is written there, as it is read-only inside.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
if "--cache" in own:
    sys.pycache_prefix = own[own.index("--cache") + 1]
else:
    sys.dont_write_bytecode = True

import launcher

launcher.main(sys.argv[1:])
