# SPDX-License-Identifier: Apache-2.0
"""Topologies of nodes as hwloc writes them (XML): packages of NUMA nodes of cores of two hardware threads, and GPUs behind a
bridge of a NUMA node, at the bus addresses of the fake NVML."""
from xml.sax.saxutils import quoteattr

FIRST_BUS = 0x1A  # of GPU 0 of tests/peers/nvml_fake.c; the others follow


def bits(numbers):
    value = sum(1 << n for n in numbers)
    words = [f"0x{value >> 32 * i & 0xffffffff:08x}" for i in range(value.bit_length() // 32 + 1)]
    return ",".join(reversed(words))


class Node:
    """numa: per NUMA node the hardware threads of each of its cores; gpus: the NUMA node of each GPU."""

    def __init__(self, numa, gpus, per_package=1):
        self.numa, self.gpus, self.per_package = numa, gpus, per_package
        self.lines, self.last = [], 0

    def cpus(self, node):
        return {t for core in self.numa[node] for t in core}

    def open(self, type_, cpus=None, nodes=(), **more):
        self.last += 1
        words = {"type": type_, "gp_index": str(self.last), **more}
        if cpus is not None:
            words |= {"cpuset": bits(cpus), "complete_cpuset": bits(cpus), "nodeset": bits(nodes), "complete_nodeset": bits(nodes)}
        self.lines.append("<object " + " ".join(f"{k}={quoteattr(v)}" for k, v in words.items()) + ">")

    def close(self):
        self.lines.append("</object>")

    def add_gpu(self, gpu):
        bus = f"{FIRST_BUS + gpu:02x}"
        self.open("Bridge", bridge_type="0-1", depth="0", bridge_pci=f"0000:[{bus}-{bus}]")
        self.open("PCIDev", pci_busid=f"0000:{bus}:00.0", pci_type="0302 [10de:2330] [10de:16c1] a1", pci_link_speed="31.5")
        self.close()
        self.close()

    def add_numa(self, i):
        self.open("Group", self.cpus(i), [i], kind="1001", subkind="0")
        self.open("NUMANode", self.cpus(i), [i], os_index=str(i), local_memory="68719476736")
        self.close()
        for core in self.numa[i]:
            self.open("Core", core, [i], os_index=str(core[0]))
            for thread in core:
                self.open("PU", [thread], [i], os_index=str(thread))
                self.close()
            self.close()
        for gpu in (g for g, at in enumerate(self.gpus) if at == i):
            self.add_gpu(gpu)
        self.close()

    def write(self, path):
        self.lines, self.last = [], 0
        nodes = range(len(self.numa))
        everything = set().union(*map(self.cpus, nodes))
        self.open("Machine", everything, nodes, os_index="0", allowed_cpuset=bits(everything), allowed_nodeset=bits(nodes))
        for first in range(0, len(self.numa), self.per_package):
            own = nodes[first:first + self.per_package]
            self.open("Package", set().union(*map(self.cpus, own)), own, os_index=str(first // self.per_package))
            for i in own:
                self.add_numa(i)
            self.close()
        self.close()
        path.write_text("\n".join(['<?xml version="1.0" encoding="UTF-8"?>', '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
                                   '<topology version="2.0">', *self.lines, "</topology>", ""]), encoding="utf-8")
        return path


def numbered(n_numa, cores):
    """The usual numbers: the first threads of all cores, then their second ones."""
    return [[(c, c + n_numa * cores) for c in range(i * cores, (i + 1) * cores)] for i in range(n_numa)]
