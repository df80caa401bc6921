/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On which machine a record was made: host, set of devices, drivers. Records of different machines
 * are no repeats of one another. A simulated run has no machine: it is the same wherever it is
 * made.
 */
#ifndef JM_MACHINE_H
#define JM_MACHINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum jm_machine_part { JM_MACHINE_HOST, JM_MACHINE_DEVICES, JM_MACHINE_DRIVERS, JM_MACHINE_PARTS };

struct jm_machine {
	/* "node1" (of several hosts "node1, node2"), "GPU-8f..., GPU-9a...", "nvidia 550.54"; "" =
	 * none */
	char *part[JM_MACHINE_PARTS];
	char *models; /* "2 x NVIDIA H100": the devices without their ids */
	char *kinds;  /* "NVIDIA H100": each model once, however many there are */
	char *ids;    /* the devices in short: "GPU-8f000000, GPU-9a000000" */
	char *cpu;
};

/* How many bytes of the id of a device are shown: of a long one its beginning. */
size_t jm_machine_id_shown(const char *id);
/* Owned by the caller, jm_machine_done; -1: no memory. All "" for a simulated run. */
int jm_machine_of(const json_t *record, struct jm_machine *ret);
void jm_machine_done(struct jm_machine *machine);
/* The same text for the same machine; with `models`, for machines with the same models of devices
 * and of processor under the same drivers. The caller frees it; NULL: no memory. */
char *jm_machine_key(const struct jm_machine *machine, bool models);
/* That with `models`, whatever the number of devices of each model. */
char *jm_machine_kind(const struct jm_machine *machine);

#endif
