"""wavegen: one manifest, every fence around a coding agent.

from wavegen import Sandbox
result = Sandbox.load("wave.yaml").run(["pytest", "-q"], shell="restricted", timeout=60)
"""

VERSION = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from wavegen.core.errors import FenceError as FenceError
    from wavegen.core.errors import MachineError as MachineError
    from wavegen.core.errors import ManifestError as ManifestError
    from wavegen.core.errors import UsageError as UsageError
    from wavegen.core.errors import WavegenError as WavegenError
    from wavegen.project.library import Result as Result
    from wavegen.project.library import Sandbox as Sandbox
else:
    # When they are asked for: the command line imports this module, and needs none of them for most of what it does.
    def __getattr__(name: str) -> object:
        if name in ("Result", "Sandbox"):
            from wavegen.project import library as place
        elif name in ("FenceError", "MachineError", "ManifestError", "UsageError", "WavegenError"):
            from wavegen.core import errors as place
        else:
            message = f"module 'wavegen' has no attribute {name!r}"
            raise AttributeError(message)
        return getattr(place, name)


__all__ = ["VERSION", "FenceError", "MachineError", "ManifestError", "Result", "Sandbox", "UsageError", "WavegenError"]
