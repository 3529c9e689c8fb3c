"""Files that are there as a whole or not at all: what is written goes to a temporary file, which is then renamed."""

from __future__ import annotations

import os
import tempfile


def replace_file(path: str, text: str) -> None:
    """Write a text. Of a symbolic link the target is replaced; its permissions are those of any new file.

    OSError, which names the path: what was there is unchanged, and no other file is left.
    """
    target = os.path.realpath(path)
    try:
        if os.path.exists(target) and not os.path.isfile(target):
            raise IsADirectoryError(0, "it is no regular file")
        descriptor, name = tempfile.mkstemp(dir=os.path.dirname(target), prefix="." + os.path.basename(path)[:100] + ".")
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), path) from error
