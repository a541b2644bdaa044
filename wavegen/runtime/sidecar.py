"""The network of shells in containers that no launcher starts, as a service beside them: compose starts it.

    python3 -I -S sidecar.py --channel PATH --shell NAME [--user UID] [--state DIR] [NETWORK OPTION...]
    python3 -I -S sidecar.py --check PATH

PATH is in a volume that the containers share. The first process of each (stage.py, stage.pl) connects there, hands over what it has opened, and
is let go on; a process of its own answers there from then on, as the launcher would, until the process that connected has ended (or,
before Linux 6.5, until this service does). What is asked for is written to DIR/network.jsonl, or as lines to stderr. With --upstream
HTTPS_PROXY and NO_PROXY of the service count. --check ends with 0 once
a container could start. Ends on TERM and INT.

Standard library only; Python 3.10 and newer.
"""

import os
import sys

if sys.version_info < (3, 10):
    sys.stderr.write("wavegen: error: python3 is older than 3.10 (take an image with a newer one)\n")
    sys.exit(125)

# -I leaves the script's own directory out. Nothing is written there, as it may be read-only.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

import sidecar_serve

sidecar_serve.main(sys.argv[1:])
