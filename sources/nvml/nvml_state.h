/* SPDX-License-Identifier: Apache-2.0 */
/* The source nvml between its files: opening finds the GPUs and their signals, reading queries
 * them. */
#ifndef JM_NVML_STATE_H
#define JM_NVML_STATE_H

#include <stdatomic.h>

#include "meter/read_budget.h"
#include "meter/source.h"
#include "nvml_first.h"
#include "nvml_probe.h"
#include "nvml_uses.h"

#define JM_NVML_SLOTS 32
#define JM_NVML_LEFT  (-1) /* the call has not returned, and another thread reads the others */

/* What one call of the driver takes stands together in struct jm_nvml_board, in this order. */
enum jm_nvml_kind {
	JM_NVML_FAST,
	JM_NVML_SLOW,
	JM_NVML_COUNTER,
	JM_NVML_CALL,
	JM_NVML_TIME,
	JM_NVML_ACTIVITY,
	JM_NVML_SAMPLES,
	JM_NVML_KINDS
};

struct jm_nvml_slot {
	const struct jm_nvml_probe *probe;
	enum jm_nvml_kind kind;
	long long stamp_us; /* of the driver, for the reading below */
	struct jm_reading last;
};

struct jm_nvml_board {
	jm_nvml_device handle;
	char label[64];
	int meter; /* of the set */
	bool lost;
	bool mute; /* the driver has not returned from the first call for it: no signals */
	_Atomic int64_t call_ns; /* since when the driver is being called; 0 = it is not, or: */
	bool left;		 /* call_ns was JM_NVML_LEFT when this poll began */
	struct jm_nvml_uses uses;
	int n_slots, begin[JM_NVML_KINDS +
			     1]; /* the slots of each kind: begin[kind] up to begin[kind + 1] */
	int counter;		 /* of energy: a field or a call; -1 = none */
	struct jm_nvml_sampler sampler;
	struct jm_read_pace pace;
	struct jm_nvml_slot slot[JM_NVML_SLOTS];
	int out[JM_NVML_SLOTS]; /* where in the source's readings each slot goes */
	struct jm_nvml_value value[JM_NVML_SLOTS];
};

/* Options of the source. */
struct jm_nvml_options {
	const char *gpu; /* "0+2"; NULL = all of the job */
	bool all, raw, activity, samples;
};

struct jm_nvml_state {
	struct jm_ctx *ctx;
	struct jm_nvml nvml;
	int n;
	bool can_leave;
	int64_t slow_ns; /* when the slow ones were last asked for */
	int64_t next_times, next_activity, next_samples;
	struct jm_read_budget budget;
	struct jm_nvml_first *first;
	struct jm_nvml_board gpu[];
};

static inline bool jm_nvml_is_field(const struct jm_nvml_board *g, int slot)
{
	return g->slot[slot].probe->field != 0;
}

/* Around every call of the driver while its readings are taken. A thread whose call was given up
 * does not return from jm_nvml_call_end. */
void jm_nvml_call_begin(struct jm_nvml_board *g);
void jm_nvml_call_end(struct jm_nvml_board *g);
/* Can a thread end there? To be asked while the source is opened. */
bool jm_nvml_can_leave(void);
/* As `leave` and `waits` of struct jm_source. */
bool jm_nvml_leave(void *state, int64_t since_ns);
bool jm_nvml_waits(void *state);

/* ---- power by the driver's buffer of samples, in place of the field: nvml_samples.c ---- */

#define JM_NVML_SAMPLE_NS  20000000LL
#define JM_NVML_SAMPLES_NS 200000000LL /* between two looks into the buffer */

#endif
