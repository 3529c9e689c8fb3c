"""Begins memlab's names in an environment without memlab's package, then is what it stands before.

memlab-run puts this folder first on PYTHONPATH. It leaves sys.path again, and the next sitecustomize that Python finds, if
there is one, is imported as if this were not there.
"""

import os
import sys

_folder = os.path.dirname(os.path.abspath(__file__))
try:
    import _memlab_names

    _memlab_names.start()
except Exception:
    pass
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _folder]
sys.path_importer_cache.pop(_folder, None)
del sys.modules["sitecustomize"], _folder
# Without another one its ImportError is the one that Python passes over.
import sitecustomize  # noqa: E402, F401
