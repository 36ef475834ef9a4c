#!python
"""The program ``taper``, which is in the extension of the package ``taper``.

The package itself is not imported, so that the program starts at once and needs no NumPy.
"""

import importlib.util
import os
import signal
import sys


def main():
    package = importlib.util.find_spec("taper").submodule_search_locations[0]
    code = os.path.join(package, "_native.abi3.so")
    spec = importlib.util.spec_from_file_location("taper._native", code)
    native = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native)
    # The program handles Ctrl-C itself; Python would only note it. A process that was started to
    # ignore it goes on ignoring it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    script = os.path.abspath(__file__)
    return native.program(sys.argv[1:], sys.executable, script, code)


if __name__ == "__main__":
    sys.exit(main())
