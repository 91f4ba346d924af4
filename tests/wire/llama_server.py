"""A llama.cpp server in a process of its own: prints its address, and serves until its standard input ends.

Run as ``python llama_server.py MODEL.gguf``. It has a small context and few slots, so that a test reaches its limits.
"""

from __future__ import annotations

import sys

SLOTS = 4
CONTEXT = 1024  # tokens of each slot
TEMPLATE = "chatml"  # the model's own adds a system prompt, which costs time


def main(model: str) -> None:
    """Serve."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * CONTEXT
    params.cpuparams.n_threads = 1  # more of them wait for each other in a spin, which takes minutes on a busy machine
    params.cpuparams_batch.n_threads = 1
    params.cpuparams.poll = 0
    params.chat_template = TEMPLATE
    params.endpoint_slots = True
    params.warmup = False
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
