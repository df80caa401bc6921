/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registers of a simulated node: its caps, its clocks and its load, in a small mapped file that
 * every process which looks at the node shares (<state>/sim/<node>.knobs). Who changes something
 * also leaves an event with its time, so that an observer computes the same whenever it looks.
 *
 * Time is a clock's, and simulated clocks of different processes have nothing to do with each
 * other: each event names its time domain. Loads are seen inside their domain only; limits by all.
 */
#ifndef JM_SIM_REGISTERS_H
#define JM_SIM_REGISTERS_H

#include "sim_model.h"

/* All inputs of a node's physics at one moment. */
struct jm_sim_inputs {
	struct jm_sim_limits limits[JM_SIM_GPUS_MAX];
	struct jm_sim_load load;
};

struct jm_sim_event {
	/* on the observer's clock; JM_SIM_NOW = of another domain: when it is noticed */
	int64_t t_ns;
	struct jm_sim_inputs after;
};
#define JM_SIM_NOW INT64_MIN

struct jm_sim_registers;

/* Made with the vendor's default caps where it is not there. JM_EFORMAT, JM_EVERSION: not such a
 * file. */
int jm_sim_registers_open(
	struct jm_ctx *ctx, const char *node, struct jm_sim_registers **ret, struct jm_err *err);
void jm_sim_registers_close(struct jm_sim_registers *r); /* takes NULL; ends its load */
const struct jm_sim_name *jm_sim_registers_name(const struct jm_sim_registers *r);

double jm_sim_registers_cap(const struct jm_sim_registers *r, int gpu);
int jm_sim_registers_set_cap(struct jm_sim_registers *r, int gpu, double watts, struct jm_err *err);
/* The range that the clock is locked to, Hz; the whole one = it is not. Its lower end changes
 * nothing. */
void jm_sim_registers_clock(
	const struct jm_sim_registers *r, int gpu, double *ret_low, double *ret_high);
int jm_sim_registers_set_clock(
	struct jm_sim_registers *r, int gpu, double low, double high, struct jm_err *err);
struct jm_sim_limits jm_sim_registers_limits(const struct jm_sim_registers *r, int gpu);
/* Puts the node under load until unload, close or death. JM_EBUSY: another process has put load
 * on it. */
int jm_sim_registers_load(
	struct jm_sim_registers *r, const struct jm_sim_load *load, struct jm_err *err);
void jm_sim_registers_unload(struct jm_sim_registers *r);

/* Where an observer stands; starts with what is now. */
struct jm_sim_cursor {
	uint64_t next; /* sequence number of the next event */
	int64_t checked_ns;
	struct jm_sim_inputs inputs;
};
void jm_sim_cursor_init(struct jm_sim_cursor *cursor, struct jm_sim_registers *r);
/* The next change that concerns this clock; false when there is none. Cheap when nothing
 * happened. */
bool jm_sim_cursor_next(struct jm_sim_cursor *cursor, struct jm_sim_registers *r, int64_t now_ns,
	struct jm_sim_event *ret);

#endif
