/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interfaces of the fake NVML: its configuration, its GPUs and their true power;
 * nvml_fake.c describes them. */
#ifndef NVML_FAKE_H
#define NVML_FAKE_H

#include "vendor/nvml.h"

#define MAX_GPUS   64
#define MAX_STEPS  512
#define MAX_PIECES 256
#define LOWEST	   345 /* MHz, clocks of an H100 */
#define LOW_MEMORY 1593

/* From `start` on the limit was `limit_w`; `joules` had been used until then. */
struct piece {
	double start, limit_w, joules;
};

struct gpu_state {
	unsigned int requested_mw, sets;
	int n_pieces;
	struct piece piece[MAX_PIECES];
};

/* What is locked, MHz; max 0 = nothing. sets: how often it was locked or unlocked. */
struct locked {
	unsigned int min, max, sets;
};

struct state {
	unsigned int magic, sets;
	struct gpu_state gpu[MAX_GPUS];
	struct locked clock[MAX_GPUS], memory_clock[MAX_GPUS];
};
#define MAGIC 0x4a4d4e31u

struct nvml_device {
	int index;
};

struct fake {
	bool ready;
	int gpus, arch, cc, init_rc;
	char name[64];
	bool mixed, response, stamp_sensor, deny_all, deny_users;
	bool deny[MAX_GPUS];
	double enforce_w[MAX_GPUS]; /* 0 = what was asked for */
	double lost_at[MAX_GPUS];   /* seconds after init; 0 = never */
	double fails_at[MAX_GPUS];  /* likewise */
	bool lost_by_field;	    /* each field says so, not the call */
	double ahead, ahead_at;	    /* of the stamps' clock, s; from when on */
	/* of the counter; seconds after init, 0 = never */
	double freeze_at[MAX_GPUS], thaw_at[MAX_GPUS], jump_at[MAX_GPUS], reset_at[MAX_GPUS];
	double jump_joules;
	double lacks[MAX_GPUS]; /* a field that this GPU does not support; 0 = none */
	/* of the limit */
	double lost_limit[MAX_GPUS]; /* 1 = its limit alone is lost */
	/* seconds; 0 = none */
	double set_lag[MAX_GPUS], get_lag[MAX_GPUS], read_lag[MAX_GPUS], use_lag[MAX_GPUS],
		init_lag;
	char lag_file[256], deny_file[256]; /* lags, refusals are while it is there; "" = always */
	int n_steps;
	double watts[MAX_STEPS], seconds[MAX_STEPS], period;
	double phase, shift, refresh, window, average, step, mem, module;
	char driver[32];
	unsigned int time_ids; /* of the times of heat and brake in hardware: 252, 270; 0 = none */
	double heat, brake;    /* shares of the time in which these held clocks back */
	bool activity, samples, clocks;
	double nvlink_mib; /* per second */
	double min_w, max_w, default_w;
	unsigned int nosupport[16], n_nosupport, persistence, power_state, cores, bus_bits, sm_mhz,
		memory_mhz;
	double memory_bytes, memory_used;
	long latency_us, set_latency_us, no_sets, cost_us, energy_cost_us;
	char users_file[256], busy_file[256];
	double mig[MAX_GPUS]; /* number of instances; 0 = not divided */
	double init_time;
	struct nvml_device device[MAX_GPUS];
	struct state *state;
	int state_fd;
};

extern struct fake fake;

struct nvml_gpm_sample {
	int gpu;
	double t;
	unsigned int instance, sm; /* of an instance: how busy it was, percent */
};

#define API __attribute__((visibility("default")))

/* Every call on a device begins here. */
int fake_enter(const struct nvml_device *d);
void fake_wait_us(long us);
void fake_lag(double seconds); /* a driver that is stuck: its caller sleeps in it */
#define ENTER(d)                                                                                   \
	do {                                                                                       \
		int entered = fake_enter(d);                                                       \
		if (entered)                                                                       \
			return entered;                                                            \
	} while (0)

void fake_configure(void);
/* Maps the limits; 0 or -1. */
int fake_open_state(void);
void fake_lock(void);
void fake_unlock(void);
double fake_now(void); /* CLOCK_MONOTONIC, s */
double fake_frac(double x);
/* The last time <= t at which something with this period and phase (a share of it) changed. */
double fake_last_tick(double t, double period, double phase);
double fake_watts(int gpu, double t);	/* P_i(t) before any cut */
double fake_joules(int gpu, double t);	/* E_i(t) */
double fake_counted(int gpu, double t); /* the value of the counter */
double fake_mean_watts(int gpu, double end, double window);
double fake_enforced_w(int gpu);
/* For how long P_i was above the limit, which holds from 0 to t. */
double fake_capped_seconds(int gpu, double t);
/* The UUID of a MIG device; false = it is a whole GPU. See nvml_fake_use.c. */
bool fake_mig_uuid(jm_nvml_device d, char *uuid, unsigned int size);
/* Settings of this GPU are refused now. */
bool fake_is_denied(int gpu);
/* The clock of the memory or the cores, MHz. */
unsigned int fake_clock(int gpu, bool memory);
/* The limit is another one from t on. With the lock held. */
void fake_add_piece(int gpu, double t);

#endif
