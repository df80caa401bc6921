/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA's management library, opened at run time. The types and prototypes below are declared by
 * hand from its published reference (NVML API 12 and 13); nothing of the vendor's header is needed
 * to build.
 */
#ifndef JM_NVML_H
#define JM_NVML_H

#include "joulemark.h"

typedef struct nvml_device *jm_nvml_device; /* opaque, the library's */

/* Return codes that are distinguished here. */
enum jm_nvml_code {
	JM_NVML_OK = 0,
	JM_NVML_INVALID_ARGUMENT = 2,
	JM_NVML_NOT_SUPPORTED = 3,
	JM_NVML_NO_PERMISSION = 4,
	JM_NVML_NOT_FOUND = 6,
	JM_NVML_INSUFFICIENT_SIZE = 7,
	JM_NVML_DRIVER_NOT_LOADED = 9,
	JM_NVML_FUNCTION_NOT_FOUND = 13,
	JM_NVML_GPU_IS_LOST = 15,
	JM_NVML_RESET_REQUIRED = 16,
	JM_NVML_BLOCKED = 17, /* the device file is closed to us: cgroup or rights */
	JM_NVML_VERSION_MISMATCH = 18,
	JM_NVML_UNKNOWN = 999,
};

/*
 * Fields of GetFieldValues; power in mW, energy in mJ, times in ns since the driver was loaded. The
 * ids of two of the times depend on the driver: 252 and 253 in the header of CUDA 12.9 (driver
 * 575), 270 and 271 in that of CUDA 13.0 beside driver 580.159.04, which answers them, and in later
 * ones; another header of CUDA 13.0 has 252 and 253. Otherwise 252 and 253 are power smoothing, in
 * 32 bits.
 */
enum jm_nvml_field_id {
	JM_NVML_TIME_POWER_CAP = 74,
	JM_NVML_TIME_THERMAL = 75,
	JM_NVML_TIME_SYNC_BOOST = 76,
	JM_NVML_TIME_BOARD_LIMIT = 77,
	JM_NVML_TIME_RELIABILITY = 79,
	JM_NVML_TIME_HW_THERMAL_575 = 252,
	JM_NVML_TIME_POWER_BRAKE_575 = 253,
	JM_NVML_TIME_HW_THERMAL = 270,
	JM_NVML_TIME_POWER_BRAKE = 271,
	JM_NVML_ENERGY = 83,
	JM_NVML_POWER_AVERAGE = 185,
	JM_NVML_POWER_INSTANT = 186,
	JM_NVML_LIMIT_MIN = 187,
	JM_NVML_LIMIT_MAX = 188,
	JM_NVML_LIMIT_DEFAULT = 189,
	JM_NVML_LIMIT_CURRENT = 190,
	JM_NVML_LIMIT_REQUESTED = 192,
};
enum jm_nvml_scope { JM_NVML_SCOPE_GPU, JM_NVML_SCOPE_MODULE, JM_NVML_SCOPE_MEMORY };

/* One value of GetFieldValues: field and scope go in, the rest comes out. */
struct jm_nvml_value {
	unsigned int field, scope;
	long long stamp_us; /* since 1970 */
	long long latency_us;
	int type; /* enum jm_nvml_type */
	int rc;
	union {
		double real;
		unsigned int u32;
		unsigned long ul;
		unsigned long long u64;
		long long s64;
		int s32;
		unsigned short u16;
	} as;
};
enum jm_nvml_type {
	JM_NVML_REAL,
	JM_NVML_U32,
	JM_NVML_UL,
	JM_NVML_U64,
	JM_NVML_S64,
	JM_NVML_S32,
	JM_NVML_U16
};

struct jm_nvml_utilisation {
	unsigned int gpu, memory; /* percent */
};

/* Activity of a GPU between two samples (GPM; Hopper and newer), percent or MiB/s. */
typedef struct nvml_gpm_sample *jm_nvml_sample; /* opaque, the library's */
enum jm_nvml_gpm_id {
	JM_NVML_GPM_SM = 2,
	JM_NVML_GPM_TENSOR = 5,
	JM_NVML_GPM_DRAM = 10,
	JM_NVML_GPM_NVLINK_RECEIVED = 60,
	JM_NVML_GPM_NVLINK_SENT = 61,
};
#define JM_NVML_GPM_VERSION 1
#define JM_NVML_GPM_MAX	    333 /* of the newest header; older ones have a shorter array at the end */
struct jm_nvml_gpm_metric {
	unsigned int id; /* goes in; the rest comes out */
	int rc;
	double value;
	char *short_name, *long_name, *unit;
};
struct jm_nvml_gpm_get {
	unsigned int version, n;
	jm_nvml_sample from, to;
	struct jm_nvml_gpm_metric metric[JM_NVML_GPM_MAX];
};
struct jm_nvml_gpm_support {
	unsigned int version, supported;
};

struct jm_nvml_pci {
	char legacy[16];
	unsigned int domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};

/* Use of a GPU by one process, in percent of its last sampling period. */
struct jm_nvml_process_sample {
	unsigned int pid;
	unsigned long long stamp_us; /* since 1970 */
	unsigned int sm, memory, encoder, decoder;
};

/* Of the driver's buffer; the value is 8 bytes wide, of which power uses four. */
struct jm_nvml_power_sample {
	unsigned long long stamp_us; /* since 1970 */
	unsigned int milliwatts, unused;
};

/* A process that has a context on a GPU or an instance (MIG) of it. */
struct jm_nvml_process {
	unsigned int pid;
	unsigned long long memory;
	unsigned int gpu_instance, compute_instance;
};

struct jm_nvml_memory {
	unsigned long long total, available, used; /* bytes */
};

/* Of an instance. */
struct jm_nvml_attributes {
	unsigned int multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, gpu_slices,
		compute_slices;
	unsigned long long memory_mib;
};

enum jm_nvml_clock { JM_NVML_CLOCK_SM = 1, JM_NVML_CLOCK_MEMORY = 2 };

enum jm_nvml_architecture {
	JM_NVML_MAXWELL = 3,
	JM_NVML_PASCAL,
	JM_NVML_VOLTA,
	JM_NVML_TURING,
	JM_NVML_AMPERE,
	JM_NVML_ADA,
	JM_NVML_HOPPER,
	JM_NVML_BLACKWELL,
};

/*
 * The one symbol table: need, name here, newest symbol, older one with the same prototype or NULL,
 * parameters. A missing OPTIONAL symbol leaves a null pointer and switches off that feature only.
 */
#define JM_NVML_SYMBOLS(X)                                                                         \
	X(REQUIRED, init, "nvmlInit_v2", "nvmlInit", (void))                                       \
	X(REQUIRED, shutdown, "nvmlShutdown", NULL, (void))                                        \
	X(REQUIRED, count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount", (unsigned int *n))       \
	X(REQUIRED, by_index, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex",       \
		(unsigned int i, jm_nvml_device *device))                                          \
	X(REQUIRED, uuid, "nvmlDeviceGetUUID", NULL,                                               \
		(jm_nvml_device device, char *uuid, unsigned int size))                            \
	X(OPTIONAL, driver_version, "nvmlSystemGetDriverVersion", NULL,                            \
		(char *version, unsigned int size))                                                \
	X(OPTIONAL, library_version, "nvmlSystemGetNVMLVersion", NULL,                             \
		(char *version, unsigned int size))                                                \
	X(OPTIONAL, by_uuid, "nvmlDeviceGetHandleByUUID", NULL,                                    \
		(const char *uuid, jm_nvml_device *device))                                        \
	X(OPTIONAL, parent_of_mig, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", NULL,           \
		(jm_nvml_device mig, jm_nvml_device * device))                                     \
	X(OPTIONAL, name, "nvmlDeviceGetName", NULL,                                               \
		(jm_nvml_device device, char *name, unsigned int size))                            \
	X(OPTIONAL, minor, "nvmlDeviceGetMinorNumber", NULL,                                       \
		(jm_nvml_device device, unsigned int *minor))                                      \
	X(OPTIONAL, pci, "nvmlDeviceGetPciInfo_v3", NULL,                                          \
		(jm_nvml_device device, struct jm_nvml_pci * pci))                                 \
	X(OPTIONAL, architecture, "nvmlDeviceGetArchitecture", NULL,                               \
		(jm_nvml_device device, unsigned int *architecture))                               \
	X(OPTIONAL, capability, "nvmlDeviceGetCudaComputeCapability", NULL,                        \
		(jm_nvml_device device, int *major, int *minor))                                   \
	X(OPTIONAL, persistence, "nvmlDeviceGetPersistenceMode", NULL,                             \
		(jm_nvml_device device, unsigned int *on))                                         \
	X(OPTIONAL, fields, "nvmlDeviceGetFieldValues", NULL,                                      \
		(jm_nvml_device device, int n, struct jm_nvml_value *values))                      \
	X(OPTIONAL, samples, "nvmlDeviceGetSamples", NULL,                                         \
		(jm_nvml_device device, int what, unsigned long long since_us, int *ret_type,      \
			unsigned int *n, struct jm_nvml_power_sample *rows))                       \
	X(OPTIONAL, power, "nvmlDeviceGetPowerUsage", NULL,                                        \
		(jm_nvml_device device, unsigned int *mw))                                         \
	X(OPTIONAL, energy, "nvmlDeviceGetTotalEnergyConsumption", NULL,                           \
		(jm_nvml_device device, unsigned long long *mj))                                   \
	X(OPTIONAL, limit, "nvmlDeviceGetPowerManagementLimit", NULL,                              \
		(jm_nvml_device device, unsigned int *mw))                                         \
	X(OPTIONAL, limit_enforced, "nvmlDeviceGetEnforcedPowerLimit", NULL,                       \
		(jm_nvml_device device, unsigned int *mw))                                         \
	X(OPTIONAL, limit_range, "nvmlDeviceGetPowerManagementLimitConstraints", NULL,             \
		(jm_nvml_device device, unsigned int *min_mw, unsigned int *max_mw))               \
	X(OPTIONAL, limit_default, "nvmlDeviceGetPowerManagementDefaultLimit", NULL,               \
		(jm_nvml_device device, unsigned int *mw))                                         \
	X(OPTIONAL, set_limit, "nvmlDeviceSetPowerManagementLimit", NULL,                          \
		(jm_nvml_device device, unsigned int mw))                                          \
	X(OPTIONAL, memory_clocks, "nvmlDeviceGetSupportedMemoryClocks", NULL,                     \
		(jm_nvml_device device, unsigned int *n, unsigned int *mhz))                       \
	X(OPTIONAL, graphics_clocks, "nvmlDeviceGetSupportedGraphicsClocks", NULL,                 \
		(jm_nvml_device device, unsigned int memory_mhz, unsigned int *n,                  \
			unsigned int *mhz))                                                        \
	X(OPTIONAL, lock_clock, "nvmlDeviceSetGpuLockedClocks", NULL,                              \
		(jm_nvml_device device, unsigned int min_mhz, unsigned int max_mhz))               \
	X(OPTIONAL, unlock_clock, "nvmlDeviceResetGpuLockedClocks", NULL, (jm_nvml_device device)) \
	X(OPTIONAL, lock_memory_clock, "nvmlDeviceSetMemoryLockedClocks", NULL,                    \
		(jm_nvml_device device, unsigned int min_mhz, unsigned int max_mhz))               \
	X(OPTIONAL, unlock_memory_clock, "nvmlDeviceResetMemoryLockedClocks", NULL,                \
		(jm_nvml_device device))                                                           \
	X(OPTIONAL, clock, "nvmlDeviceGetClockInfo", NULL,                                         \
		(jm_nvml_device device, int type, unsigned int *mhz))                              \
	X(OPTIONAL, clock_max, "nvmlDeviceGetMaxClockInfo", NULL,                                  \
		(jm_nvml_device device, int type, unsigned int *mhz))                              \
	X(OPTIONAL, memory, "nvmlDeviceGetMemoryInfo", NULL,                                       \
		(jm_nvml_device device, struct jm_nvml_memory * memory))                           \
	X(OPTIONAL, bus_width, "nvmlDeviceGetMemoryBusWidth", NULL,                                \
		(jm_nvml_device device, unsigned int *bits))                                       \
	X(OPTIONAL, cores, "nvmlDeviceGetNumGpuCores", NULL,                                       \
		(jm_nvml_device device, unsigned int *n))                                          \
	X(OPTIONAL, temperature, "nvmlDeviceGetTemperature", NULL,                                 \
		(jm_nvml_device device, int sensor, unsigned int *celsius))                        \
	X(OPTIONAL, utilisation, "nvmlDeviceGetUtilizationRates", NULL,                            \
		(jm_nvml_device device, struct jm_nvml_utilisation * utilisation))                 \
	X(OPTIONAL, power_state, "nvmlDeviceGetPerformanceState", NULL,                            \
		(jm_nvml_device device, unsigned int *state))                                      \
	X(OPTIONAL, throttle, "nvmlDeviceGetCurrentClocksEventReasons",                            \
		"nvmlDeviceGetCurrentClocksThrottleReasons",                                       \
		(jm_nvml_device device, unsigned long long *reasons))                              \
	X(OPTIONAL, gpm_support, "nvmlGpmQueryDeviceSupport", NULL,                                \
		(jm_nvml_device device, struct jm_nvml_gpm_support * support))                     \
	X(OPTIONAL, gpm_alloc, "nvmlGpmSampleAlloc", NULL, (jm_nvml_sample * sample))              \
	X(OPTIONAL, gpm_free, "nvmlGpmSampleFree", NULL, (jm_nvml_sample sample))                  \
	X(OPTIONAL, gpm_sample, "nvmlGpmSampleGet", NULL,                                          \
		(jm_nvml_device device, jm_nvml_sample sample))                                    \
	X(OPTIONAL, gpm_metrics, "nvmlGpmMetricsGet", NULL, (struct jm_nvml_gpm_get * get))        \
	X(OPTIONAL, gpm_instance_sample, "nvmlGpmMigSampleGet", NULL,                              \
		(jm_nvml_device device, unsigned int instance, jm_nvml_sample sample))             \
	X(OPTIONAL, process_use, "nvmlDeviceGetProcessUtilization", NULL,                          \
		(jm_nvml_device device, struct jm_nvml_process_sample * sample, unsigned int *n,   \
			unsigned long long since_us))                                              \
	X(OPTIONAL, processes, "nvmlDeviceGetComputeRunningProcesses_v3",                          \
		"nvmlDeviceGetComputeRunningProcesses_v2",                                         \
		(jm_nvml_device device, unsigned int *n, struct jm_nvml_process *process))         \
	X(OPTIONAL, mig_mode, "nvmlDeviceGetMigMode", NULL,                                        \
		(jm_nvml_device device, unsigned int *current, unsigned int *pending))             \
	X(OPTIONAL, mig_count, "nvmlDeviceGetMaxMigDeviceCount", NULL,                             \
		(jm_nvml_device device, unsigned int *n))                                          \
	X(OPTIONAL, mig_by_index, "nvmlDeviceGetMigDeviceHandleByIndex", NULL,                     \
		(jm_nvml_device device, unsigned int i, jm_nvml_device *mig))                      \
	X(OPTIONAL, instance_id, "nvmlDeviceGetGpuInstanceId", NULL,                               \
		(jm_nvml_device mig, unsigned int *id))                                            \
	X(OPTIONAL, attributes, "nvmlDeviceGetAttributes_v2", NULL,                                \
		(jm_nvml_device mig, struct jm_nvml_attributes * attributes))

struct jm_nvml {
	void *library;
	bool initialised;
	char driver[80], version[80]; /* "" = unknown */
	const char *(*error_string)(int rc);
#define X(need, field, newest, older, parameters) int(*field) parameters;
	JM_NVML_SYMBOLS(X)
#undef X
};

/* Loads JM_NVML_LIB or libnvidia-ml.so.1 and initialises it. */
int jm_nvml_open(struct jm_nvml *ret, struct jm_err *err);
void jm_nvml_close(struct jm_nvml *nvml);
/* The library's own words for a code. */
const char *jm_nvml_text(const struct jm_nvml *nvml, int rc);
/* The library's code as one of ours. */
int jm_nvml_code(int rc);
double jm_nvml_number(const struct jm_nvml_value *value); /* NAN when there is none */

#define JM_NVML_UUID 128 /* bytes; the library says 96 */

/* One GPU and what identifies it. */
struct jm_nvml_gpu {
	jm_nvml_device handle;
	int index; /* NVML's, which is the order on the PCI bus */
	int minor; /* of /dev/nvidiaN; -1 = unknown */
	char uuid[JM_NVML_UUID], name[96], bus_id[32];
	char label[64];		   /* "GPU 0 NVIDIA H200" */
	unsigned int architecture; /* 0 = unknown */
	int capability;		   /* 80 = 8.0; 0 = unknown */
	bool allocated;		   /* ours to use */
	int number;		   /* among those that are ours to use, as CUDA counts them */
};

struct jm_nvml_gpus {
	struct jm_nvml_gpu *gpu;
	int n, n_allocated;
	char why[160];	    /* what decided about the allocation; "" = all GPUs */
	char note[256];	    /* what had to be assumed; "" = nothing */
	char left_out[256]; /* the last GPU that cannot be used, and why; "" = none */
};

#endif
