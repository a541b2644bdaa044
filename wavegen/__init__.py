"""wavegen: one manifest, every fence around a coding agent.

from wavegen import Sandbox
result = Sandbox.load("wave.yaml").run(["pytest", "-q"], shell="restricted", timeout=60)
"""

VERSION = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from wavegen.errors import FenceError as FenceError
    from wavegen.errors import MachineError as MachineError
    from wavegen.errors import ManifestError as ManifestError
    from wavegen.errors import UsageError as UsageError
    from wavegen.errors import WavegenError as WavegenError
    from wavegen.sandbox import Result as Result
    from wavegen.sandbox import Sandbox as Sandbox
else:
    # When they are asked for: the command line imports this module, and needs none of them for most of what it does.
    def __getattr__(name: str) -> object:
        if name in ("Result", "Sandbox"):
            from wavegen import sandbox as place
        elif name in ("FenceError", "MachineError", "ManifestError", "UsageError", "WavegenError"):
            from wavegen import errors as place
        else:
            message = f"module 'wavegen' has no attribute {name!r}"
            raise AttributeError(message)
        return getattr(place, name)


__all__ = ["VERSION", "FenceError", "MachineError", "ManifestError", "Result", "Sandbox", "UsageError", "WavegenError"]
