/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts after amdsmi.h of ROCm 6.0 to 7.1 and rocm_smi.h of ROCm 5 and 6. Figures that come by
 * pointer (energy, temperature) are the same in all of them. amdsmi_power_info_t changed: version
 * 23.4 to 24 has 32-bit words, the current power first; 25 (ROCm 6.4) and 26 (ROCm 7) have a 64-bit
 * socket power before it. The caps and the first word of a clock are the same in all versions that
 * were seen. So is the beginning of amdsmi_gpu_metrics_t, up to the reasons of throttling, which
 * the driver translates to bits that are the same for all GPUs (amdgpu_smu.h of Linux). MI300 and
 * later have no such bits, and report UINT64_MAX. amdsmi_od_volt_freq_data_t begins with four
 * ranges of clocks, two words each.
 */
#include "amd.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "library.h"

#define INIT_GPUS	2
#define MAX_SOCKETS	64
#define CLOCK_GFX	0
#define CLOCK_MEMORY	4
#define JUNCTION	1
#define CURRENT		0
#define MAX_WATTS	15e3 /* of a GPU, or of the socket that it is in */
#define NOT_AVAILABLE	UINT32_MAX
#define NOT_AVAILABLE2	UINT16_MAX /* of a field that is narrower in the driver's table */
#define METRICS_WORDS	4096	   /* of amdsmi_gpu_metrics_t, 64-bit: more than any version has */
#define METRICS_FORMAT	1	   /* of GPUs; others are of processors with graphics */
#define FORMAT_OF(word) ((word) >> 16 & 0xff)
#define METRICS_WHY	14 /* its word with the reasons of throttling */
/* Bits of them: limits of power, and temperatures. */
#define BY_POWER 0x00000000000000ffULL
#define BY_HEAT	 0x00003fff00000000ULL

/* Larger than any version of the struct that a call fills. */
union room {
	uint32_t u32[256];
	uint64_t u64[128];
};

struct smi_calls {
	int (*init)(uint64_t flags);
	int (*shut_down)(void);
	int (*version)(void *ret);
	int (*sockets)(uint32_t *n, void **ret);
	int (*processors)(void *socket, uint32_t *n, void **ret);
	int (*bdf)(void *gpu, uint64_t *ret);
	int (*uuid)(void *gpu, unsigned int *size, char *ret);
	int (*energy)(void *gpu, uint64_t *count, float *micro, uint64_t *stamp);
	int (*power)(void *gpu, void *ret);
	int (*cap)(void *gpu, uint32_t sensor, void *ret);
	int (*clock)(void *gpu, int type, void *ret);
	int (*temperature)(void *gpu, int place, int metric, int64_t *ret);
	int (*activity)(void *gpu, void *ret);
	/* NULL in some libraries */
	int (*metrics)(void *gpu, void *ret);
	int (*clock_ends)(void *gpu, void *ret);
	int (*level)(void *gpu, int *ret);
	int (*set_cap)(void *gpu, uint32_t sensor, uint64_t micro);
	int (*set_clock_end)(void *gpu, int type, int high, uint64_t mhz);
	int (*set_level)(void *gpu, int level);
};

struct rocm_calls {
	int (*init)(uint64_t flags);
	int (*shut_down)(void);
	int (*count)(uint32_t *n);
	int (*bdf)(uint32_t gpu, uint64_t *ret);
	int (*unique)(uint32_t gpu, uint64_t *ret);
	int (*energy)(uint32_t gpu, uint64_t *count, float *micro, uint64_t *stamp);
	int (*average)(uint32_t gpu, uint32_t sensor, uint64_t *micro);
	int (*cap)(uint32_t gpu, uint32_t sensor, uint64_t *micro);
	int (*temperature)(uint32_t gpu, uint32_t place, int metric, int64_t *milli);
	int (*busy)(uint32_t gpu, uint32_t *percent);
};

static struct smi_calls smi;
static struct rocm_calls rocm;

static const struct jm_symbol smi_symbols[] = {
	{"amdsmi_init", offsetof(struct smi_calls, init)},
	{"amdsmi_shut_down", offsetof(struct smi_calls, shut_down)},
	{"amdsmi_get_lib_version", offsetof(struct smi_calls, version)},
	{"amdsmi_get_socket_handles", offsetof(struct smi_calls, sockets)},
	{"amdsmi_get_processor_handles", offsetof(struct smi_calls, processors)},
	{"amdsmi_get_gpu_device_bdf", offsetof(struct smi_calls, bdf)},
	{"amdsmi_get_gpu_device_uuid", offsetof(struct smi_calls, uuid)},
	{"amdsmi_get_energy_count", offsetof(struct smi_calls, energy)},
	{"amdsmi_get_power_info", offsetof(struct smi_calls, power)},
	{"amdsmi_get_power_cap_info", offsetof(struct smi_calls, cap)},
	{"amdsmi_get_clock_info", offsetof(struct smi_calls, clock)},
	{"amdsmi_get_temp_metric", offsetof(struct smi_calls, temperature)},
	{"amdsmi_get_gpu_activity", offsetof(struct smi_calls, activity)},
	{"amdsmi_get_gpu_metrics_info", offsetof(struct smi_calls, metrics)},
	{"amdsmi_get_gpu_od_volt_info", offsetof(struct smi_calls, clock_ends)},
	{"amdsmi_get_gpu_perf_level", offsetof(struct smi_calls, level)},
	{"amdsmi_set_power_cap", offsetof(struct smi_calls, set_cap)},
	{"amdsmi_set_gpu_clk_limit", offsetof(struct smi_calls, set_clock_end)},
	{"amdsmi_set_gpu_perf_level", offsetof(struct smi_calls, set_level)},
};

static const struct jm_symbol rocm_symbols[] = {
	{"rsmi_init", offsetof(struct rocm_calls, init)},
	{"rsmi_shut_down", offsetof(struct rocm_calls, shut_down)},
	{"rsmi_num_monitor_devices", offsetof(struct rocm_calls, count)},
	{"rsmi_dev_pci_id_get", offsetof(struct rocm_calls, bdf)},
	{"rsmi_dev_unique_id_get", offsetof(struct rocm_calls, unique)},
	{"rsmi_dev_energy_count_get", offsetof(struct rocm_calls, energy)},
	{"rsmi_dev_power_ave_get", offsetof(struct rocm_calls, average)},
	{"rsmi_dev_power_cap_get", offsetof(struct rocm_calls, cap)},
	{"rsmi_dev_temp_metric_get", offsetof(struct rocm_calls, temperature)},
	{"rsmi_dev_busy_percent_get", offsetof(struct rocm_calls, busy)},
};

#define DRIVER "/sys/module/amdgpu"
#define MEND   "install AMD's ROCm, or name the file in "
static const struct jm_library smi_library = {
	.title = "libamd_smi",
	.variable = "JM_AMDSMI_LIB",
	.driver = DRIVER,
	.names = {"libamd_smi.so", "libamd_smi.so.26", "libamd_smi.so.25",
		"/opt/rocm/lib/libamd_smi.so"},
	.mend = MEND "JM_AMDSMI_LIB",
	.symbols = smi_symbols,
	.n_symbols = sizeof(smi_symbols) / sizeof(smi_symbols[0]),
	.n_optional = 6,
};
static const struct jm_library rocm_library = {
	.title = "librocm_smi64",
	.variable = "JM_ROCMSMI_LIB",
	.driver = DRIVER,
	.names = {"librocm_smi64.so", "librocm_smi64.so.7", "librocm_smi64.so.1",
		"/opt/rocm/lib/librocm_smi64.so"},
	.mend = MEND "JM_ROCMSMI_LIB",
	.symbols = rocm_symbols,
	.n_symbols = sizeof(rocm_symbols) / sizeof(rocm_symbols[0]),
};

/* ---- opening ---- */

/* bus: the bits below it are device and function; both libraries agree in those. */
static void name_pci(struct jm_amd_gpu *gpu, uint64_t bdf, int domain_shift)
{
	snprintf(gpu->pci, sizeof(gpu->pci), "%04x:%02x:%02x.%x",
		(unsigned int)(bdf >> domain_shift) & 0xffff, (unsigned int)(bdf >> 8) & 0xff,
		(unsigned int)(bdf >> 3) & 0x1f, (unsigned int)bdf & 7);
}

static void add_processors(struct jm_amd *amd, void *socket)
{
	void *handle[JM_AMD_MAX];
	uint32_t n = 0;

	if (smi.processors(socket, &n, NULL))
		return;
	n = n < JM_AMD_MAX ? n : JM_AMD_MAX;
	if (smi.processors(socket, &n, handle))
		return;
	for (uint32_t i = 0; i < n && amd->n < JM_AMD_MAX; i++) {
		struct jm_amd_gpu *gpu = &amd->gpu[amd->n];
		unsigned int size = sizeof(gpu->uuid);
		uint64_t bdf;

		*gpu = (struct jm_amd_gpu){.handle = handle[i]};
		if (smi.bdf(handle[i], &bdf))
			continue;
		name_pci(gpu, bdf, 16);
		if (smi.uuid(handle[i], &size, gpu->uuid))
			gpu->uuid[0] = '\0';
		gpu->uuid[sizeof(gpu->uuid) - 1] = '\0';
		amd->n++;
	}
}

static int refused(const char *library, int rc, struct jm_err *err)
{
	return jm_err_set(err, JM_ENOENT,
		"%s cannot be started (code %d); the kernel module amdgpu is not loaded, or "
		"/dev/kfd and "
		"/dev/dri may not be opened (add the user to the groups render and video).",
		library, rc);
}

static int open_smi(struct jm_amd *amd, struct jm_err *err)
{
	void *socket[MAX_SOCKETS];
	union room version = {{0}};
	uint32_t n = 0;
	int rc = jm_library_open(&smi_library, &smi, err);

	if (rc)
		return rc;
	rc = smi.init(INIT_GPUS);
	if (rc)
		return refused("libamd_smi", rc, err);
	amd->calls = &smi;
	amd->library = "libamd_smi";
	/* the year of older versions and the major number of newer ones are both the first word */
	amd->generation = smi.version(&version) ? 0 : version.u32[0];
	if (smi.sockets(&n, NULL))
		n = 0;
	n = n < MAX_SOCKETS ? n : MAX_SOCKETS;
	if (n && smi.sockets(&n, socket))
		n = 0;
	for (uint32_t i = 0; i < n; i++)
		add_processors(amd, socket[i]);
	return 0;
}

static int open_rocm(struct jm_amd *amd, struct jm_err *err)
{
	uint32_t n = 0;
	int rc = jm_library_open(&rocm_library, &rocm, err);

	if (rc)
		return rc;
	rc = rocm.init(0);
	if (rc)
		return refused("librocm_smi64", rc, err);
	amd->calls = &rocm;
	amd->library = "librocm_smi64";
	if (rocm.count(&n))
		n = 0;
	for (uint32_t i = 0; i < n && amd->n < JM_AMD_MAX; i++) {
		struct jm_amd_gpu *gpu = &amd->gpu[amd->n];
		uint64_t bdf, unique;

		*gpu = (struct jm_amd_gpu){.index = i};
		if (rocm.bdf(i, &bdf))
			continue;
		name_pci(gpu, bdf, 32);
		if (!rocm.unique(i, &unique))
			snprintf(gpu->uuid, sizeof(gpu->uuid), "%016" PRIx64, unique);
		amd->n++;
	}
	return 0;
}

int jm_amd_open(struct jm_amd *amd, struct jm_err *err)
{
	struct jm_err second = JM_ERR_INIT;

	*amd = (struct jm_amd){0};
	if (!open_smi(amd, err) || !open_rocm(amd, &second)) {
		*err = (struct jm_err)JM_ERR_INIT;
		if (amd->n)
			return 0;
		jm_amd_close(amd);
		return jm_err_set(
			err, JM_ENOENT, "%s finds no GPU of AMD on this machine.", amd->library);
	}
	/* what is wrong with the library that is there says more than that the other one is
	 * missing */
	if (err->code == JM_ENOSUP && second.code != JM_ENOSUP)
		*err = second;
	return err->code;
}

void jm_amd_close(struct jm_amd *amd)
{
	if (amd->calls == &smi)
		smi.shut_down();
	else if (amd->calls)
		rocm.shut_down();
	amd->calls = NULL;
}

/* ---- values ---- */

static bool is_smi(const struct jm_amd *amd)
{
	return amd->calls == &smi;
}

static double watts(double value)
{
	return value > 0 && value < MAX_WATTS ? value : NAN;
}

static double watts_of(uint32_t word)
{
	return word == NOT_AVAILABLE || word == NOT_AVAILABLE2 ? NAN : watts(word);
}

struct jm_amd_energy jm_amd_energy(const struct jm_amd *amd, int i)
{
	const struct jm_amd_gpu *gpu = &amd->gpu[i];
	struct jm_amd_energy ret = {.joules = NAN};
	uint64_t count = 0, stamp = 0;
	float micro = 0;
	int rc = is_smi(amd) ? smi.energy(gpu->handle, &count, &micro, &stamp)
			     : rocm.energy(gpu->index, &count, &micro, &stamp);

	/* 0: the second die of a board, whose joules the first one counts, or no counter */
	if (rc || !count || count == UINT64_MAX || !(micro > 0 && micro < 1e6F))
		return ret;
	ret.step = (double)micro * 1e-6;
	ret.joules = (double)count * ret.step;
	ret.boot_ns = stamp < INT64_MAX ? (int64_t)stamp : 0;
	return ret;
}

bool jm_amd_power_known(const struct jm_amd *amd)
{
	return !is_smi(amd) || (amd->generation >= 23 && amd->generation <= 26);
}

struct jm_amd_power jm_amd_power(const struct jm_amd *amd, int i)
{
	struct jm_amd_power ret = {NAN, NAN};
	union room info = {{0}};
	uint64_t micro;

	if (!is_smi(amd)) {
		if (!rocm.average(amd->gpu[i].index, 0, &micro))
			ret.average = watts((double)micro * 1e-6);
	} else if (jm_amd_power_known(amd) && !smi.power(amd->gpu[i].handle, &info)) {
		int first = amd->generation >= 25 ? 2 : 0; /* behind a 64-bit word, or at once */

		ret.current = watts_of(info.u32[first]);
		ret.average = watts_of(info.u32[first + 1]);
	}
	return ret;
}

double jm_amd_cap(const struct jm_amd *amd, int i)
{
	union room info = {{0}};
	int rc = is_smi(amd) ? smi.cap(amd->gpu[i].handle, 0, &info)
			     : rocm.cap(amd->gpu[i].index, 0, &info.u64[0]);

	return rc ? NAN : watts((double)info.u64[0] * 1e-6);
}

double jm_amd_clock(const struct jm_amd *amd, int i, bool memory)
{
	union room info = {{0}};

	if (!is_smi(amd) || smi.clock(amd->gpu[i].handle, memory ? CLOCK_MEMORY : CLOCK_GFX, &info))
		return NAN;
	return info.u32[0] > 0 && info.u32[0] < 20000 ? info.u32[0] * 1e6 : NAN;
}

double jm_amd_temperature(const struct jm_amd *amd, int i)
{
	int64_t value = 0;
	double degrees;
	int rc = is_smi(amd) ? smi.temperature(amd->gpu[i].handle, JUNCTION, CURRENT, &value)
			     : rocm.temperature(amd->gpu[i].index, JUNCTION, CURRENT, &value);

	degrees = is_smi(amd) ? (double)value : (double)value * 1e-3;
	return rc || degrees <= 0 || degrees > 200 ? NAN : degrees;
}

double jm_amd_busy(const struct jm_amd *amd, int i)
{
	union room info = {{0}};
	int rc = is_smi(amd) ? smi.activity(amd->gpu[i].handle, &info)
			     : rocm.busy(amd->gpu[i].index, &info.u32[0]);

	return rc || info.u32[0] > 100 ? NAN : info.u32[0] / 100.0;
}

double jm_amd_throttle(const struct jm_amd *amd, int i)
{
	uint64_t info[METRICS_WORDS], why;
	int bits = 0;

	if (!is_smi(amd) || !jm_amd_power_known(amd) || !smi.metrics)
		return NAN;
	info[0] = 0;
	if (smi.metrics(amd->gpu[i].handle, info) || FORMAT_OF(info[0]) != METRICS_FORMAT ||
		info[METRICS_WHY] == UINT64_MAX)
		return NAN;
	why = info[METRICS_WHY];
	bits |= why & BY_POWER ? JM_AMD_BY_POWER : 0;
	bits |= why & BY_HEAT ? JM_AMD_BY_HEAT : 0;
	bits |= why & ~(BY_POWER | BY_HEAT) ? JM_AMD_BY_OTHER : 0;
	return bits;
}

/* ---- settings ---- */

/* amdsmi_dev_perf_level_t from 0 on. Not DETERMINISM, which has a clock of its own. */
const char *const jm_amd_levels[] = {"auto", "low", "high", "manual", "stable_std", "stable_peak",
	"stable_min_mclk", "stable_min_sclk", NULL};

bool jm_amd_caps(const struct jm_amd *amd, int i, struct jm_amd_caps *ret)
{
	union room info = {{0}};

	if (!is_smi(amd) || !smi.set_cap || smi.cap(amd->gpu[i].handle, 0, &info))
		return false;
	*ret = (struct jm_amd_caps){
		.now = watts((double)info.u64[0] * 1e-6),
		.fallback = watts((double)info.u64[1] * 1e-6),
		.min = (double)info.u64[3] * 1e-6,
		.max = watts((double)info.u64[4] * 1e-6),
	};
	return true;
}

bool jm_amd_clock_ends(const struct jm_amd *amd, int i, struct jm_amd_clock_ends *ret)
{
	union room info = {{0}};

	if (!is_smi(amd) || !smi.set_clock_end || !smi.clock_ends ||
		smi.clock_ends(amd->gpu[i].handle, &info))
		return false;
	*ret = (struct jm_amd_clock_ends){
		(double)info.u64[0], (double)info.u64[1], (double)info.u64[4], (double)info.u64[5]};
	return ret->low > 0 && ret->low <= ret->high && ret->min > 0 && ret->min < ret->max;
}

int jm_amd_level(const struct jm_amd *amd, int i)
{
	int level = -1;

	if (!is_smi(amd) || !smi.set_level || !smi.level || smi.level(amd->gpu[i].handle, &level) ||
		level < 0 || level > JM_AMD_LEVELS)
		return -1;
	return level;
}

int jm_amd_set_cap(const struct jm_amd *amd, int i, double value)
{
	return smi.set_cap(amd->gpu[i].handle, 0, (uint64_t)llround(value * 1e6));
}

int jm_amd_set_clock_end(const struct jm_amd *amd, int i, bool high, double hz)
{
	return smi.set_clock_end(amd->gpu[i].handle, CLOCK_GFX, high, (uint64_t)llround(hz * 1e-6));
}

int jm_amd_set_level(const struct jm_amd *amd, int i, int level)
{
	return smi.set_level(amd->gpu[i].handle, level);
}

const char *jm_amd_code_text(int code)
{
	switch (code) {
	case 1:
		return "the driver does not take this value";
	case JM_AMD_NOT_SUPPORTED:
		return "the GPU does not support it";
	case JM_AMD_NO_PERMISSION:
		return "permission denied";
	default:
		return "the driver refuses it";
	}
}
