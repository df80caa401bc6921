#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a PyTorch script whose compiled code is, or will be, in PyTorch's cache: compile_first.py SCRIPT ARGUMENT...

With COMPILE_ONLY=N in the environment the process ends when N graphs are compiled, the backward pass included, before the
first step. The same script finds their code in the cache when it runs without the variable.
"""
import os
import runpy
import sys

import torch
import torch._functorch.config

GRAPHS = int(os.environ.get("COMPILE_ONLY", "0"))
compiled = []
plain_compile = torch.compile


def compile_graph(graph, inputs, mode=None):
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx
    made = compile_fx(graph, inputs, config_patches=list_mode_options(mode) if mode else None)
    compiled.append(made)
    if len(compiled) == GRAPHS:
        os._exit(0)  # without the destructors of threads that still hold the GPU
    return made


def main(script, *words):
    torch._functorch.config.force_non_lazy_backward_lowering = True
    torch.compile = lambda *args, **more: plain_compile(*args, **{"backend": compile_graph, **more})
    sys.argv = [script, *words]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
