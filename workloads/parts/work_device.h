/* SPDX-License-Identifier: Apache-2.0 */
/* The device of a workload: opened, and made known to the worker by what its meters call it. */
#ifndef JM_WORK_DEVICE_H
#define JM_WORK_DEVICE_H

#include "engine/device/device.h"
#include "engine/graph/graph.h"
#include "run/workload.h"

/* Is there such a device, and does it compute in that precision? A `check` of a workload. */
int jm_work_device_check(const char *device, const char *precision, struct jm_err *err);

/* Opens work->device. threads: as of jm_device_open. */
int jm_work_device_open(
	struct jm_work *work, int threads, struct jm_device *ret, struct jm_err *err);

/* Opens work->peer as well, for copies between both devices; *ret_direct as in
 * engine/device/backend_peer.h. The caller closes *ret also after an error. */
int jm_work_device_open_peer(struct jm_work *work, const struct jm_device *own,
	struct jm_device *ret, bool *ret_direct, struct jm_err *err);

/* A plan, or its memory, failed with this code, which is returned: the device is unusable where a
 * library of it is missing or of an unsuitable version (JM_EVERSION), or where other processes hold
 * the memory (JM_EBUSY). */
int jm_work_device_planned(struct jm_work *work, int code);

/* Adds to the note that the device computes with this type without instructions for it, if that is
 * so. */
void jm_work_device_note(struct jm_work *work, const struct jm_device *d, enum jm_dtype type);

/*
 * The first thing that runs on it, unless it is the reference: a few ops of the planned graph on
 * small random shapes against ref (selftest.h); into the record. An error: one is wrong.
 */
int jm_work_device_test(struct jm_work *work, const struct jm_device *d, const struct jm_graph *g,
	struct jm_err *err);

#endif
