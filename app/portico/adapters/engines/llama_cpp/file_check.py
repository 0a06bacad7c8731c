"""A check of a model file, without its weights, in a process of its own: `python -m` this module, and the file.

llama.cpp refuses most broken files, but aborts the process for some, at once or at the first text: a vocabulary with a
repeated token or without a token for some byte, an impossible number of layers. Then this process ends, and not the
service.
"""

import os
import subprocess
import sys
from pathlib import Path

from portico.adapters.engines.llama_cpp.library import open_library

SECONDS = 60
EVERY_BYTE = bytes(range(256)).decode("latin-1") + "日😀\U0010ffff"


def is_loadable(path: Path) -> bool:
    """Tell whether llama.cpp survives the file and takes it. Blocks."""
    command = [sys.executable, "-m", __name__, str(path)]
    try:
        ended = subprocess.run(  # noqa: S603 - our own module, and the path is one argument
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


def _read(path: str) -> bool:
    llama = open_library("check").llama
    settings = llama.llama_model_default_params()
    settings.no_alloc, settings.load_mode = True, llama.LLAMA_LOAD_MODE_NONE
    model = llama.llama_model_load_from_file(os.fsencode(path), settings)
    if model is None:
        return False
    text = EVERY_BYTE.encode()
    tokens = (llama.llama_token * (2 * len(text)))()
    vocabulary = llama.llama_model_get_vocab(model)
    return bool(llama.llama_tokenize(vocabulary, text, len(text), tokens, len(tokens), False, True) > 0)


if __name__ == "__main__":
    sys.exit(0 if _read(sys.argv[1]) else 1)
