/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMD's management libraries: libamd_smi, or the older librocm_smi64 where that one is missing or
 * lacks a function. Both are opened at run time. Values come in SI units; NAN = the library or the
 * GPU does not have it.
 */
#ifndef JM_VENDOR_AMD_H
#define JM_VENDOR_AMD_H

#include <stdbool.h>
#include <stdint.h>

#include "joulemark.h"

#define JM_AMD_MAX 128

struct jm_amd_gpu {
	void *handle;	/* of libamd_smi */
	uint32_t index; /* of librocm_smi64 */
	char pci[24];	/* "0000:c1:00.0" */
	char uuid[48];	/* "" = unknown */
};

struct jm_amd_energy {
	double joules, step;
	int64_t boot_ns; /* the driver's stamp on the clock that counts since boot; 0 = none */
};

struct jm_amd_power {
	double current, average; /* W; a GPU has one of the two */
};

struct jm_amd {
	const void *calls;   /* of the library that was opened */
	const char *library; /* "libamd_smi" */
	unsigned int
		generation; /* first part of its version: 23 and 24 are years, 25 and later majors; 0 = rocm_smi */
	int n;
	struct jm_amd_gpu gpu[JM_AMD_MAX];
};

enum jm_amd_throttle { JM_AMD_BY_POWER = 1, JM_AMD_BY_HEAT = 2, JM_AMD_BY_OTHER = 4 };

int jm_amd_open(struct jm_amd *amd, struct jm_err *err);
void jm_amd_close(struct jm_amd *amd);

struct jm_amd_energy jm_amd_energy(const struct jm_amd *amd, int i);
struct jm_amd_power jm_amd_power(const struct jm_amd *amd, int i);
double jm_amd_cap(const struct jm_amd *amd, int i);		   /* W */
double jm_amd_clock(const struct jm_amd *amd, int i, bool memory); /* Hz */
double jm_amd_temperature(const struct jm_amd *amd, int i);	   /* degC, of the hottest place */
double jm_amd_busy(const struct jm_amd *amd, int i);		   /* 0..1 */
/* Why clocks are held back now: bits of enum jm_amd_throttle. */
double jm_amd_throttle(const struct jm_amd *amd, int i);
/* Whether power is known by this version: the layout of its struct is checked against the versions
 * that are known. */
bool jm_amd_power_known(const struct jm_amd *amd);

/* Settings, through libamd_smi alone. */
struct jm_amd_caps {
	double now, fallback, min, max; /* W; min may be 0 */
};
/* The range of the clock of the cores that is set, and the widest one, Hz. */
struct jm_amd_clock_ends {
	double low, high, min, max;
};
#define JM_AMD_LEVELS	    8		  /* the level that follows those that are named */
#define JM_AMD_LEVEL_MANUAL 3		  /* the only one under which the clock takes a range */
extern const char *const jm_amd_levels[]; /* performance levels; NULL-terminated */
enum jm_amd_code { JM_AMD_NOT_SUPPORTED = 2, JM_AMD_NO_PERMISSION = 10 };

/* false: the library or the GPU lacks it. */
bool jm_amd_caps(const struct jm_amd *amd, int i, struct jm_amd_caps *ret);
bool jm_amd_clock_ends(const struct jm_amd *amd, int i, struct jm_amd_clock_ends *ret);
/* An index of jm_amd_levels, JM_AMD_LEVELS = another one, or -1. */
int jm_amd_level(const struct jm_amd *amd, int i);
/* Of a GPU that has it; 0, or a code of the library. */
int jm_amd_set_cap(const struct jm_amd *amd, int i, double value); /* W */
/* The library sets the level to manual as well. */
int jm_amd_set_clock_end(const struct jm_amd *amd, int i, bool high, double hz);
int jm_amd_set_level(const struct jm_amd *amd, int i, int level);
const char *jm_amd_code_text(int code);

#endif
