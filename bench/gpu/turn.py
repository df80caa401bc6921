#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a PyTorch script, which waits between compiling and its first step: turn.py SCRIPT ARGUMENT...

Programs that compile disturb those that measure. With TURN=FILE in the environment the script creates FILE.waits when the first
graph is compiled, the backward pass included, and goes on when FILE exists. It then holds its parameters, but no activations.
TURN_GRAPHS=N: at the N-th graph, for a script that compiles the parts of its model separately; activations of a step are held.
"""
import os
import pathlib
import runpy
import sys
import time

import torch
import torch._functorch.config

TURN = os.environ.get("TURN")
GRAPHS = int(os.environ.get("TURN_GRAPHS", "1"))
compiled = []
plain_compile = torch.compile


def wait():
    begun, waits = pathlib.Path(TURN), pathlib.Path(TURN + ".waits")
    if not waits.exists():
        waits.touch()
        while not begun.exists():
            time.sleep(0.02)


def compile_and_wait(graph, inputs, **more):
    from torch._inductor.compile_fx import compile_fx
    made = compile_fx(graph, inputs, **more)
    compiled.append(made)
    if TURN and len(compiled) >= GRAPHS:
        wait()
    return made


def main(script, *words):
    torch._functorch.config.force_non_lazy_backward_lowering = True
    torch.compile = lambda *args, **more: plain_compile(*args, **{"backend": compile_and_wait, **more})
    sys.argv = [script, *words]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
