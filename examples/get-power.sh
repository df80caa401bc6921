#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# get-power.sh: the energy of a part of a Python program by the interface of jpwr (docs/jpwr.md). Needs NVIDIA GPUs and
# pandas (Debian: python3-pandas); the tests use fake GPUs.
# needs: gpus
# prints: ^pynvml:1 +[0-9.]+$
# prints: ^whole +[0-9.]+ . [0-9.]+ J measured
set -eu
PYTHONPATH=$(dirname "$0")/../python /usr/bin/python3 - <<'PROGRAM'
import time
from joulemark import get_power  # in place of: from jpwr.ctxmgr import get_power

with get_power(["pynvml"], 100) as measured:  # methods; milliseconds between the rows of power
    time.sleep(0.5)                           # the work

print(measured.df)                            # watts over time
energy, additional = measured.energy()
print(energy)                                 # Wh of each GPU
print(measured.measurement)                   # joules with their uncertainty
PROGRAM
