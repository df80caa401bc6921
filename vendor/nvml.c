/* SPDX-License-Identifier: Apache-2.0 */
/* Loading NVIDIA's management library: one table of symbols, codes into sentences. */
#include "nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct jm_nvml_value) == 40, "the layout of nvmlFieldValue_t");
_Static_assert(offsetof(struct jm_nvml_gpm_get, metric) == 24, "the layout of nvmlGpmMetricsGet_t");
_Static_assert(sizeof(struct jm_nvml_pci) == 68, "the layout of nvmlPciInfo_t");
_Static_assert(sizeof(struct jm_nvml_process_sample) == 32, "nvmlProcessUtilizationSample_t");
_Static_assert(sizeof(struct jm_nvml_process) == 24, "the layout of nvmlProcessInfo_t");
_Static_assert(sizeof(struct jm_nvml_attributes) == 40, "the layout of nvmlDeviceAttributes_t");

enum need { OPTIONAL, REQUIRED };

static const struct {
	enum need need;
	const char *newest, *older;
	size_t offset;
} symbols[] = {
#define X(need, field, newest, older, parameters)                                                  \
	{need, newest, older, offsetof(struct jm_nvml, field)},
	JM_NVML_SYMBOLS(X)
#undef X
};

/* A pointer to a function comes as a pointer to data; POSIX promises that they fit. */
static int resolve(struct jm_nvml *nvml, const char *file, struct jm_err *err)
{
	void *found;

	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		found = dlsym(nvml->library, symbols[i].newest);

		if (!found && symbols[i].older)
			found = dlsym(nvml->library, symbols[i].older);
		if (!found && symbols[i].need == REQUIRED)
			return jm_err_set(err, JM_EVERSION,
				"%s has no %s, so this version of NVML cannot be used; check "
				"JM_NVML_LIB or update the NVIDIA driver.",
				file, symbols[i].newest);
		memcpy((char *)nvml + symbols[i].offset, &found, sizeof(found));
	}
	found = dlsym(nvml->library, "nvmlErrorString");
	memcpy(&nvml->error_string, &found, sizeof(found));
	return 0;
}

const char *jm_nvml_text(const struct jm_nvml *nvml, int rc)
{
	const char *text = nvml->error_string ? nvml->error_string(rc) : NULL;

	return text ? text : "unknown error";
}

int jm_nvml_code(int rc)
{
	switch (rc) {
	case JM_NVML_OK:
		return JM_OK;
	case JM_NVML_INVALID_ARGUMENT:
		return JM_ERANGE;
	case JM_NVML_NOT_SUPPORTED:
	case JM_NVML_FUNCTION_NOT_FOUND:
		return JM_ENOSUP;
	case JM_NVML_NO_PERMISSION:
	case JM_NVML_BLOCKED:
		return JM_EPERM;
	case JM_NVML_NOT_FOUND:
	case JM_NVML_DRIVER_NOT_LOADED:
		return JM_ENOENT;
	case JM_NVML_GPU_IS_LOST:
	case JM_NVML_RESET_REQUIRED:
		return JM_EGONE;
	case JM_NVML_VERSION_MISMATCH:
		return JM_EVERSION;
	default:
		return JM_EIO;
	}
}

double jm_nvml_number(const struct jm_nvml_value *v)
{
	if (v->rc != JM_NVML_OK)
		return NAN;
	switch (v->type) {
	case JM_NVML_REAL:
		return v->as.real;
	case JM_NVML_U32:
		return v->as.u32 == UINT32_MAX ? NAN : (double)v->as.u32;
	case JM_NVML_UL:
		return v->as.ul == UINT64_MAX ? NAN : (double)v->as.ul;
	case JM_NVML_U64:
		return v->as.u64 == UINT64_MAX ? NAN : (double)v->as.u64;
	case JM_NVML_S64:
		return (double)v->as.s64;
	case JM_NVML_S32:
		return v->as.s32;
	case JM_NVML_U16:
		return v->as.u16;
	default:
		return NAN;
	}
}

/* What to do about a library that does not start. */
static const char *mend(int rc)
{
	switch (rc) {
	case JM_NVML_DRIVER_NOT_LOADED:
		return "load the kernel module with 'modprobe nvidia', or boot the kernel the "
		       "driver was built for";
	case JM_NVML_VERSION_MISMATCH:
		return "the library and the kernel module are of different driver versions: "
		       "reboot, or in a container mount the host's library";
	case JM_NVML_NO_PERMISSION:
	case JM_NVML_BLOCKED:
		return "this user or cgroup may not open the device files /dev/nvidia*";
	default:
		return "see the output of nvidia-smi";
	}
}

static int start(struct jm_nvml *nvml, const char *file, struct jm_err *err)
{
	int rc = nvml->init();

	if (rc)
		return jm_err_set(err, jm_nvml_code(rc), "%s cannot be started: %s; %s.", file,
			jm_nvml_text(nvml, rc), mend(rc));
	nvml->initialised = true;
	if (nvml->driver_version)
		nvml->driver_version(nvml->driver, sizeof(nvml->driver));
	if (nvml->library_version)
		nvml->library_version(nvml->version, sizeof(nvml->version));
	return 0;
}

int jm_nvml_open(struct jm_nvml *ret, struct jm_err *err)
{
	const char *file = secure_getenv("JM_NVML_LIB");
	struct jm_nvml nvml = {0};
	int rc;

	if (!file || !*file)
		file = "libnvidia-ml.so.1";
	nvml.library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!nvml.library)
		return jm_err_set(err, JM_ENOENT,
			"Cannot load NVIDIA's library (%s); install the NVIDIA driver (Debian: "
			"libnvidia-ml1), or name the file in JM_NVML_LIB.",
			dlerror());
	rc = resolve(&nvml, file, err);
	if (!rc)
		rc = start(&nvml, file, err);
	if (rc)
		jm_nvml_close(&nvml);
	else
		*ret = nvml;
	return rc;
}

void jm_nvml_close(struct jm_nvml *nvml)
{
	if (nvml->initialised)
		nvml->shutdown();
	if (nvml->library)
		dlclose(nvml->library);
	*nvml = (struct jm_nvml){0};
}
