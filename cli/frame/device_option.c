/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device is written as `run` has it. What reads a device and what sets it have the same name, so
 * that one text serves both: "sim:h100x4" for a simulated node, "nvml:0" for the GPU cuda:0.
 */
#include "device_option.h"

#include "result/case_id.h"

#include <stdio.h>
#include <string.h>

#define GPU "cuda"

/* cuda:1, or cuda, which is the first; -1 = no GPU. */
static int gpu_of(const char *device)
{
	int index = 0, end = 0;

	if (strncmp(device, GPU, strlen(GPU)) != 0)
		return -1;
	device += strlen(GPU);
	if (!*device)
		return 0;
	return device[1] >= '0' && device[1] <= '9' &&
			       sscanf(device, ":%3d%n", &index, &end) == 1 && !device[end]
		       ? index
		       : -1;
}

static bool is_machine(const char *device)
{
	return !strcmp(device, "cpu") || !strcmp(device, "ref");
}

static int unknown(const char *device, struct jm_err *err)
{
	return jm_err_set(err, JM_EUSAGE,
		"There is no device '%s' here; write cpu, cuda:0, or a simulated node such as "
		"sim:h100x4. 'joulemark doctor' shows the devices of this machine.",
		device);
}

/* Appends one device to the text of members; *whole: it is the machine with all that it has. */
static int add_member(const char *device, char *out, size_t size, bool *whole, struct jm_err *err)
{
	bool gpus = strstr(out, "nvml:");
	size_t used = strlen(out);
	int gpu = gpu_of(device);

	*whole = *whole || is_machine(device);
	if (is_machine(device))
		return 0;
	if (gpu < 0 && !jm_case_simulated(device))
		return unknown(device, err);
	if (gpu < 0)
		snprintf(out + used, size - used, "%s%s", used ? "," : "", device);
	else if (gpus) /* the GPUs are one member, which is written last */
		snprintf(out + used, size - used, "+%d", gpu);
	else
		snprintf(out + used, size - used, "%snvml:%d", used ? "," : "", gpu);
	return 0;
}

/* Simulated nodes first, so that all GPUs stand together. */
static int add_members(
	const char *devices, bool gpus, char *out, size_t size, bool *whole, struct jm_err *err)
{
	int rc = 0;

	for (const char *at = devices; *at && !rc; at += strcspn(at, ","), at += *at == ',') {
		size_t n = strcspn(at, ",");
		char one[64] = "";

		memcpy(one, at, n < sizeof(one) ? n : sizeof(one) - 1);
		if (gpus == (gpu_of(one) >= 0))
			rc = add_member(one, out, size, whole, err);
	}
	return rc;
}

/* "" = all that this machine has, and nothing simulated. */
static int members_of(const char *devices, char *out, size_t size, struct jm_err *err)
{
	bool whole = false;
	int rc;

	*out = '\0';
	rc = add_members(devices, false, out, size, &whole, err);
	if (!rc && whole && *out)
		return jm_err_set(err, JM_EUSAGE,
			"--device '%s' names this machine and a simulated node; give one of them.",
			devices);
	return rc || whole ? rc : add_members(devices, true, out, size, &whole, err);
}

int jm_device_sources(
	const char *device, char *const *texts, struct jm_source_list *ret, struct jm_err *err)
{
	char members[400];
	int rc;

	if (!device)
		return jm_source_list_take(ret, texts, err);
	if (texts)
		return jm_err_set(err, JM_EUSAGE,
			"--device chooses the sources, and so does --source; give one of them.");
	rc = members_of(device, members, sizeof(members), err);
	return rc ? rc : jm_source_list_add(ret, members, err);
}

int jm_device_controls(const char *device, const char *control, char *out, size_t size,
	const char **ret, struct jm_err *err)
{
	int rc;

	*ret = control;
	if (!device)
		return 0;
	if (control)
		return jm_err_set(err, JM_EUSAGE,
			"--device chooses the controls, and so does --control; give one of them.");
	rc = members_of(device, out, size, err);
	*ret = *out ? out : NULL;
	return rc;
}

int jm_device_option_check(const char *device, struct jm_err *err)
{
	char members[400];

	return members_of(device, members, sizeof(members), err);
}

bool jm_device_is_served(const char *device, const char *member, enum jm_origin origin)
{
	char members[400];
	size_t n = strlen(member);

	if (members_of(device, members, sizeof(members), NULL))
		return false;
	if (!*members)
		return origin == JM_MEASURED || origin == JM_ESTIMATED;
	for (const char *at = members; *at; at += strcspn(at, ","), at += *at == ',')
		if (!strncmp(at, member, n) && (at[n] == ':' || !at[n]))
			return true;
	return false;
}
