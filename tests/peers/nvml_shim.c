/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands between joulemark and the real libnvidia-ml.so.1: readings pass through, power limits are
 * kept in a file. `--set` then runs from end to end on a GPU whose own limit never changes, and
 * does not reduce its power. By hand and in tests:
 *
 *	JM_NVML_LIB=build/tests/peers/libnvidia-ml-shim.so	this library in place of the
 *			driver's
 *	JM_NVML_SHIM_REAL=FILE	the library behind it; libnvidia-ml.so.1 when not set
 *	JM_NVML_SHIM_FILE=FILE	lines "UUID milliwatts", one per GPU whose limit was set; required
 *				for a set
 *
 * No function that sets a value is looked up in the real library, and only that of the power limit
 * is exported. The versions that it reports end in "+shim".
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "vendor/nvml.h"

#define API	 __attribute__((visibility("default")))
#define MOST_GPU 64

static void *real(const char *name)
{
	static void *library;
	const char *file = getenv("JM_NVML_SHIM_REAL");

	if (!library)
		library = dlopen(file && *file ? file : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	return library ? dlsym(library, name) : NULL;
}

/* name, older name or NULL, parameters, arguments: a call of the real library. */
#define PASS(name, older, parameters, arguments)                                                   \
	API int name parameters;                                                                   \
	API int name parameters                                                                    \
	{                                                                                          \
		static int(*call) parameters;                                                      \
		const char *second = older;                                                        \
		void *found = call ? NULL : real(#name);                                           \
                                                                                                   \
		if (!call && !found && second)                                                     \
			found = real(second);                                                      \
		if (found)                                                                         \
			memcpy(&call, &found, sizeof(found));                                      \
		return call ? call arguments : JM_NVML_FUNCTION_NOT_FOUND;                         \
	}

PASS(nvmlShutdown, NULL, (void), ())
PASS(nvmlDeviceGetCount_v2, "nvmlDeviceGetCount", (unsigned int *n), (n))
PASS(nvmlDeviceGetHandleByIndex_v2, "nvmlDeviceGetHandleByIndex",
	(unsigned int i, jm_nvml_device *device), (i, device))
PASS(nvmlDeviceGetUUID, NULL, (jm_nvml_device d, char *uuid, unsigned int size), (d, uuid, size))
PASS(nvmlDeviceGetHandleByUUID, NULL, (const char *uuid, jm_nvml_device *d), (uuid, d))
PASS(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, NULL, (jm_nvml_device mig, jm_nvml_device *d),
	(mig, d))
PASS(nvmlDeviceGetName, NULL, (jm_nvml_device d, char *name, unsigned int size), (d, name, size))
PASS(nvmlDeviceGetMinorNumber, NULL, (jm_nvml_device d, unsigned int *minor), (d, minor))
PASS(nvmlDeviceGetPciInfo_v3, "nvmlDeviceGetPciInfo_v2",
	(jm_nvml_device d, struct jm_nvml_pci *pci), (d, pci))
PASS(nvmlDeviceGetArchitecture, NULL, (jm_nvml_device d, unsigned int *arch), (d, arch))
PASS(nvmlDeviceGetCudaComputeCapability, NULL, (jm_nvml_device d, int *major, int *minor),
	(d, major, minor))
PASS(nvmlDeviceGetPersistenceMode, NULL, (jm_nvml_device d, unsigned int *on), (d, on))
PASS(nvmlDeviceGetPowerUsage, NULL, (jm_nvml_device d, unsigned int *mw), (d, mw))
PASS(nvmlDeviceGetTotalEnergyConsumption, NULL, (jm_nvml_device d, unsigned long long *mj), (d, mj))
PASS(nvmlDeviceGetPowerManagementLimitConstraints, NULL,
	(jm_nvml_device d, unsigned int *min, unsigned int *max), (d, min, max))
PASS(nvmlDeviceGetPowerManagementDefaultLimit, NULL, (jm_nvml_device d, unsigned int *mw), (d, mw))
PASS(nvmlDeviceGetClockInfo, NULL, (jm_nvml_device d, int type, unsigned int *mhz), (d, type, mhz))
PASS(nvmlDeviceGetMaxClockInfo, NULL, (jm_nvml_device d, int type, unsigned int *mhz),
	(d, type, mhz))
PASS(nvmlDeviceGetMemoryInfo, NULL, (jm_nvml_device d, struct jm_nvml_memory *memory), (d, memory))
PASS(nvmlDeviceGetMemoryBusWidth, NULL, (jm_nvml_device d, unsigned int *bits), (d, bits))
PASS(nvmlDeviceGetNumGpuCores, NULL, (jm_nvml_device d, unsigned int *n), (d, n))
PASS(nvmlDeviceGetPerformanceState, NULL, (jm_nvml_device d, unsigned int *state), (d, state))
PASS(nvmlDeviceGetTemperature, NULL, (jm_nvml_device d, int sensor, unsigned int *celsius),
	(d, sensor, celsius))
PASS(nvmlDeviceGetUtilizationRates, NULL, (jm_nvml_device d, struct jm_nvml_utilisation *u), (d, u))
PASS(nvmlDeviceGetCurrentClocksEventReasons, "nvmlDeviceGetCurrentClocksThrottleReasons",
	(jm_nvml_device d, unsigned long long *reasons), (d, reasons))

static int call_text(const char *name, char *text, unsigned int size)
{
	int (*call)(char *, unsigned int) = NULL;
	void *found = real(name);
	int rc;

	if (!found)
		return JM_NVML_FUNCTION_NOT_FOUND;
	memcpy(&call, &found, sizeof(found));
	rc = call(text, size);
	if (!rc && strlen(text) + sizeof("+shim") <= size)
		memcpy(text + strlen(text), "+shim", sizeof("+shim"));
	return rc;
}

API int nvmlSystemGetDriverVersion(char *text, unsigned int size);
API int nvmlSystemGetDriverVersion(char *text, unsigned int size)
{
	return call_text("nvmlSystemGetDriverVersion", text, size);
}

API int nvmlSystemGetNVMLVersion(char *text, unsigned int size);
API int nvmlSystemGetNVMLVersion(char *text, unsigned int size)
{
	return call_text("nvmlSystemGetNVMLVersion", text, size);
}

API const char *nvmlErrorString(int rc);
API const char *nvmlErrorString(int rc)
{
	const char *(*call)(int) = NULL;
	void *found = real("nvmlErrorString");

	memcpy(&call, &found, sizeof(found));
	return call ? call(rc) : "unknown error";
}

API int nvmlInit_v2(void);
API int nvmlInit_v2(void)
{
	int (*call)(void) = NULL;
	void *found = real("nvmlInit_v2");

	memcpy(&call, &found, sizeof(found));
	return call ? call() : JM_NVML_DRIVER_NOT_LOADED;
}

/* ---- the limits ------------------------------------------------------------------------------ */

struct entry {
	char uuid[JM_NVML_UUID];
	unsigned int mw;
};

static int read_entries(FILE *f, struct entry *e)
{
	int n = 0;

	while (n < MOST_GPU && fscanf(f, "%127s %u", e[n].uuid, &e[n].mw) == 2)
		n++;
	return n;
}

/* Takes a lock on the file for as long as it is open. */
static FILE *open_entries(const char *mode, int flags)
{
	const char *path = getenv("JM_NVML_SHIM_FILE");
	int fd = path ? open(path, flags | O_CLOEXEC, 0666) : -1;

	if (fd < 0)
		return NULL;
	flock(fd, *mode == 'r' && !mode[1] ? LOCK_SH : LOCK_EX);
	return fdopen(fd, mode);
}

/* The limit that was set here; false: none was. */
static bool find(jm_nvml_device d, unsigned int *ret_mw)
{
	struct entry e[MOST_GPU];
	char uuid[JM_NVML_UUID] = "";
	FILE *f = open_entries("r", O_RDONLY);
	int n = f ? read_entries(f, e) : 0;

	if (f)
		fclose(f);
	if (!n || nvmlDeviceGetUUID(d, uuid, sizeof(uuid)))
		return false;
	for (int i = 0; i < n; i++)
		if (!strcmp(e[i].uuid, uuid)) {
			*ret_mw = e[i].mw;
			return true;
		}
	return false;
}

static int keep(const char *uuid, unsigned int mw)
{
	struct entry e[MOST_GPU + 1];
	FILE *f = open_entries("r+", O_RDWR | O_CREAT);
	int n = f ? read_entries(f, e) : 0, i = 0;

	if (!f)
		return JM_NVML_NO_PERMISSION;
	while (i < n && strcmp(e[i].uuid, uuid) != 0)
		i++;
	snprintf(e[i].uuid, sizeof(e[i].uuid), "%s", uuid);
	e[i].mw = mw;
	n = i == n ? n + 1 : n;
	rewind(f);
	for (i = 0; i < n; i++)
		fprintf(f, "%s %10u\n", e[i].uuid, e[i].mw);
	return fclose(f) ? JM_NVML_UNKNOWN : JM_NVML_OK;
}

static int limit_of(const char *name, jm_nvml_device d, unsigned int *mw)
{
	int (*call)(jm_nvml_device, unsigned int *) = NULL;
	void *found = real(name);

	if (find(d, mw))
		return JM_NVML_OK;
	memcpy(&call, &found, sizeof(found));
	return call ? call(d, mw) : JM_NVML_FUNCTION_NOT_FOUND;
}

API int nvmlDeviceGetPowerManagementLimit(jm_nvml_device d, unsigned int *mw);
API int nvmlDeviceGetPowerManagementLimit(jm_nvml_device d, unsigned int *mw)
{
	return limit_of("nvmlDeviceGetPowerManagementLimit", d, mw);
}

API int nvmlDeviceGetEnforcedPowerLimit(jm_nvml_device d, unsigned int *mw);
API int nvmlDeviceGetEnforcedPowerLimit(jm_nvml_device d, unsigned int *mw)
{
	return limit_of("nvmlDeviceGetEnforcedPowerLimit", d, mw);
}

API int nvmlDeviceSetPowerManagementLimit(jm_nvml_device d, unsigned int mw);
API int nvmlDeviceSetPowerManagementLimit(jm_nvml_device d, unsigned int mw)
{
	unsigned int min, max;
	char uuid[JM_NVML_UUID];
	int rc = nvmlDeviceGetPowerManagementLimitConstraints(d, &min, &max);

	if (!rc && (mw < min || mw > max))
		rc = JM_NVML_INVALID_ARGUMENT;
	if (!rc)
		rc = nvmlDeviceGetUUID(d, uuid, sizeof(uuid));
	return rc ? rc : keep(uuid, mw);
}

API int nvmlDeviceGetFieldValues(jm_nvml_device d, int n, struct jm_nvml_value *values);
API int nvmlDeviceGetFieldValues(jm_nvml_device d, int n, struct jm_nvml_value *values)
{
	int (*call)(jm_nvml_device, int, struct jm_nvml_value *) = NULL;
	void *found = real("nvmlDeviceGetFieldValues");
	unsigned int mw = 0;
	int rc;

	memcpy(&call, &found, sizeof(found));
	rc = call ? call(d, n, values) : JM_NVML_FUNCTION_NOT_FOUND;
	for (int i = 0; !rc && i < n; i++) {
		bool ours = values[i].field == JM_NVML_LIMIT_REQUESTED ||
			    values[i].field == JM_NVML_LIMIT_CURRENT;

		if (!ours || values[i].scope || !find(d, &mw))
			continue;
		values[i].rc = JM_NVML_OK;
		values[i].type = JM_NVML_U32;
		values[i].as.u64 = 0;
		values[i].as.u32 = mw;
	}
	return rc;
}
