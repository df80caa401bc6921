/* SPDX-License-Identifier: Apache-2.0 */
/* --device of the commands that read sensors or change settings: it chooses the sources and the
 * controls. */
#ifndef JM_DEVICE_OPTION_H
#define JM_DEVICE_OPTION_H

#include "cli.h"
#include "meter/meter.h"
#include "meter/source_list.h"

#define JM_DEVICE_ROW                                                                              \
	.name = "device", .argument = "DEVICE,...",                                                \
	.help = "the device, by the name that 'run' has for it: cuda:0 is the first GPU of this "  \
		"job, cpu and ref this machine with all that it has, sim:h100x4 a simulated "      \
		"node; "                                                                           \
		"without it this machine"

#define JM_CONTROL_ROW                                                                             \
	.name = "control", .argument = "NAME",                                                     \
	.help = "controls to use, separated by commas: nvml, sim:h100x4, ...; without it "         \
		"those of this machine, never a simulated one"

/* Adds the sources of --device (NULL = not given), or those of --source (texts; NULL = none). */
int jm_device_sources(
	const char *device, char *const *texts, struct jm_source_list *ret, struct jm_err *err);
/* The controls of --device, or of --control; *ret NULL: those of this machine. Its text is
 * `control` or in out. */
int jm_device_controls(const char *device, const char *control, char *out, size_t size,
	const char **ret, struct jm_err *err);

/* Is it a list of devices? JM_EUSAGE */
int jm_device_option_check(const char *device, struct jm_err *err);
/* Does the source or control of that name serve one of these devices? "" = the machine's own. */
bool jm_device_is_served(const char *device, const char *member, enum jm_origin origin);

#endif
