# SPDX-License-Identifier: Apache-2.0
"""joulemarkd: users without rights set knobs within root's policy, and everything finds its way back."""
import os
import signal

import pytest

from daemon import Service, needs_a_namespace
from fake_gpus import kill, wait_for
from jm import FAILURE, sentence

pytestmark = needs_a_namespace

FOUND, LIMIT = "150125000", "constraint_0_power_limit_uw"
POLICY = """\
# who           what
user anna       package.power=100:200W   for 1h leases 2
group ml        cpu.governor=powersave,performance
user berta      package.power@intel-rapl:1=0.1:0.12kW
"""


@pytest.fixture
def service(tmp_path):
    s = Service(tmp_path)
    s.policy(POLICY)
    try:
        yield s
    finally:
        s.close()


def limits(service):
    return [service.machine.get(f"/sys/class/powercap/intel-rapl:{i}/{LIMIT}") for i in range(2)]


def test_a_user_sets_within_the_policy_and_all_is_back(service):
    service.start()
    done = service.run("anna", "set", "package.power=120W", "--", "cat", f"/sys/class/powercap/intel-rapl:1/{LIMIT}")
    assert done.returncode == 0 and done.stdout == "120000000\n", done.stderr
    assert "120 W (was 150.125 W)" in done.stderr
    assert limits(service) == [FOUND] * 2 and not service.journals()
    assert wait_for(lambda: not service.leases())
    assert "set package.power of" in service.log() and "all put back" in service.log()


@pytest.mark.parametrize("user, words, why", [
    ("anna", ["package.power=99W"], "lets user 2001 set package.power of package-0 to 100:200W, not to 99W"),
    ("carla", ["package.power=120W"], "lets user 2003 set no knob"),
    ("berta", ["cpu.governor=performance"], "does not let user 2002 set cpu.governor"),
    ("berta", ["package.power=110W"], "does not let user 2002 set package.power of package-0"),
])
def test_refused_by_the_policy(service, user, words, why):
    service.start()
    done = service.run(user, "set", *words, "--", "true")
    assert why in sentence(done, FAILURE), done.stderr
    assert limits(service) == [FOUND] * 2 and not service.journals()
    assert why in service.log()
