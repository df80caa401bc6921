/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room meter: meters, their signals and readings; the contract of a source (source.h) and the
 * budget of costly readings (read_budget.h).
 * May include: base.
 *
 * Meters and their signals: what is measured, known by stable identity.
 */
#ifndef JM_METER_H
#define JM_METER_H

#include <math.h>

#include "joulemark.h"
#include "meter/hardware.h"

#define JM_ID_MAX 128

#define JM_ORIGINS(X)                                                                              \
	X(MEASURED, "measured")                                                                    \
	X(ESTIMATED, "estimated")                                                                  \
	X(SIMULATED, "simulated")                                                                  \
	X(REPLAYED, "replayed")
enum jm_origin {
#define X(name, text) JM_##name,
	JM_ORIGINS(X)
#undef X
};

#define JM_SCOPES(X)                                                                               \
	X(NODE, "node")                                                                            \
	X(PSU, "psu")                                                                              \
	X(OUTLET, "outlet")                                                                        \
	X(MODULE, "module")                                                                        \
	X(PLATFORM, "platform")                                                                    \
	X(PACKAGE, "package")                                                                      \
	X(CORE, "core")                                                                            \
	X(UNCORE, "uncore")                                                                        \
	X(DRAM, "dram")                                                                            \
	X(GPU, "gpu")                                                                              \
	X(GPU_CORE, "gpu-core")                                                                    \
	X(GPU_MEMORY, "gpu-memory")                                                                \
	X(GPU_IO, "gpu-io")                                                                        \
	X(CONTEXT, "context") /* draws no power: circumstances, which are in no total */
enum jm_scope {
#define X(name, text) JM_SCOPE_##name,
	JM_SCOPES(X)
#undef X
};

#define JM_SCOPE_ONE(name, text) +1
#define JM_SCOPE_COUNT		 (0 JM_SCOPES(JM_SCOPE_ONE))

/* The quantity of a signal, which also fixes the unit of its readings. */
#define JM_QUANTITIES(X)                                                                           \
	X(ENERGY, "energy", "J")	       /* a counter */                                     \
	X(POWER, "power", "W")		       /* instantaneous, or the shortest window */         \
	X(POWER_AVERAGE, "power-average", "W") /* over a long window */                            \
	X(CLOCK, "clock", "Hz")                                                                    \
	X(MEMORY_CLOCK, "memory-clock", "Hz")                                                      \
	X(TEMPERATURE, "temperature", "degC")                                                      \
	X(UTILISATION, "utilisation", "1") /* 0..1 */                                              \
	X(POWER_STATE, "power-state", "1") /* P0, the fastest, to P15 */                           \
	X(THROTTLE, "throttle", "bits")	   /* enum jm_throttle, or-ed */                           \
	X(LIMIT, "power-limit", "W")	   /* enforced */                                          \
	X(LIMIT_REQUESTED, "power-limit-requested", "W")                                           \
	X(VOLTAGE, "voltage", "V")                                                                 \
	X(CURRENT, "current", "A")                                                                 \
	X(POWER_FACTOR, "power-factor", "1")                                                       \
	X(FAN, "fan", "rpm")                                                                       \
	X(MEMORY_USED, "memory-used", "B")                                                         \
	/* shares of the time between two readings, and traffic in it */                           \
	X(SM_ACTIVITY, "sm-activity", "1")                                                         \
	X(TENSOR_ACTIVITY, "tensor-activity", "1")                                                 \
	X(DRAM_ACTIVITY, "dram-activity", "1") /* of the bandwidth */                              \
	X(NVLINK_RECEIVED, "nvlink-received", "B/s")                                               \
	X(NVLINK_SENT, "nvlink-sent", "B/s")                                                       \
	/* counters: the time for which clocks were held back, by reason */                        \
	X(POWER_CAP_TIME, "power-cap-time", "s")                                                   \
	X(THERMAL_TIME, "thermal-time", "s") /* by software */                                     \
	X(HW_THERMAL_TIME, "hw-thermal-time", "s")                                                 \
	X(POWER_BRAKE_TIME, "power-brake-time", "s")                                               \
	X(SYNC_BOOST_TIME, "sync-boost-time", "s")                                                 \
	X(BOARD_LIMIT_TIME, "board-limit-time", "s")                                               \
	X(RELIABILITY_TIME, "reliability-time", "s")                                               \
	/* counters: the time in which some, or all, of the tasks waited for a resource */         \
	X(STALL_TIME, "stall-time", "s")                                                           \
	X(FULL_STALL_TIME, "full-stall-time", "s")
enum jm_quantity {
#define X(name, text, unit) JM_Q_##name,
	JM_QUANTITIES(X)
#undef X
};
#define JM_QUANTITY_ONE(name, text, unit) +1
#define JM_QUANTITY_COUNT		  (0 JM_QUANTITIES(JM_QUANTITY_ONE))

/* Why clocks are held back; bits of JM_Q_THROTTLE, the same for every vendor. */
enum jm_throttle {
	JM_THROTTLE_POWER_CAP = 1,
	JM_THROTTLE_THERMAL = 2,
	JM_THROTTLE_POWER_BRAKE = 4,
	JM_THROTTLE_OTHER = 8,
};

/* From the origin that says most about the machine to the one that says least. */
#define JM_ORIGIN_COUNT 4
extern const enum jm_origin jm_origin_order[JM_ORIGIN_COUNT];

const char *jm_origin_name(enum jm_origin origin);
const char *jm_scope_name(enum jm_scope scope);
const char *jm_quantity_name(enum jm_quantity quantity);
const char *jm_quantity_unit(enum jm_quantity quantity);
/* Does it only grow, so that the difference of two readings is what counts? */
bool jm_quantity_is_counter(enum jm_quantity quantity);
#define JM_WRAP_WATTS  4000 /* no device with a counter that wraps draws more */
#define JM_WRAP_JOULES 1000 /* more than that, by readings whose times are not exact */
/*
 * Joules by which an energy counter has risen from one reading to the next, so many seconds later,
 * also over its end (wrap, J). NAN: it was reset, because it went back by what is no way over its
 * end: more than half of its range, from beyond its range, or more than a device draws in this
 * time.
 */
static inline double jm_counter_rise(double wrap, double before, double now, double seconds)
{
	double over = now + wrap - before;

	if (now >= before)
		return now - before;
	if (!(wrap > 0) || over < 0 || over > wrap / 2 ||
		over > JM_WRAP_WATTS * seconds + JM_WRAP_JOULES)
		return NAN;
	return over;
}

/* A counter without a step for so many refreshes, and for a second, shows no power: its device
 * rests, or it is stuck. */
#define JM_STILL_REFRESHES 10

struct jm_signal {
	enum jm_quantity quantity;
	int meter;	    /* index in the set; filled by jm_meters_add_signal */
	double step;	    /* resolution in the quantity's unit; 0 = unknown */
	double wrap;	    /* a counter starts again at 0 after this many joules; 0 = never */
	int64_t refresh_ns; /* how often the sensor changes; 0 = unknown */
	/* averaging window that ends at the reading's time; 0 = instantaneous, -1 unknown */
	int64_t window_ns;
	double accuracy; /* relative, of the sensor itself; NAN = unknown */
	/* Readings carry the sensor's own stamp: the value holds for exactly t_ns. False: t_ns is
	 * when it was read, and the value came at the sensor's last refresh before that. */
	bool stamped;
	/* refresh and window were found by `joulemark calibrate` on this machine */
	bool calibrated;
};

/*
 * covers: the components whose power this meter includes, as space-separated paths. "cpu/0"
 * includes "cpu/0/core"; "/" is the whole node, "outside/door" no part of it. GPU: "gpu/<UUID>",
 * its memory "gpu/<UUID>/memory"; a RAPL package "cpu/0", its core "cpu/0/core", its DRAM "dram/0";
 * a Grace-Hopper module "cpu/0 dram/0 gpu/<UUID>".
 */
struct jm_meter {
	char id[JM_ID_MAX]; /* stable: "nvml:GPU-8f...", "rapl:/sys/...", never an index */
	char label[64];	    /* for people, short: "GPU 0 NVIDIA H200", "CPU 0" */
	char about
		[96]; /* how it comes to its values, where its source does not say it: "1.5 W + 2.8 W per busy core" */
	char device[JM_ID_MAX];	     /* the device it belongs to (GPU UUID); "" = none */
	char bus[24];		     /* of that device: "00000000:1B:00.0"; "" = unknown or none */
	char driver[48];	     /* version of the driver that reads it; "" = unknown */
	struct jm_hardware hardware; /* of that device */
	const char *source;	     /* the source's name; static */
	enum jm_scope scope;
	enum jm_origin origin;
	const char *covers;	     /* of any length; jm_meters_add copies it */
	int first_signal, n_signals; /* its signals are adjacent in the set */
	/* worked out by jm_meters_derive: */
	int covered_by; /* index of the smallest meter that includes all of it; -1 = topmost */
	int overlaps;	/* index of a meter that shares a part of it only; -1 = none */
	/* in no total: outside of the node; by jm_meters_own, of GPUs on which no work runs */
	bool elsewhere;
};

struct jm_meters {
	struct jm_meter *meter;
	int n;
	struct jm_signal *signal;
	int n_signals;
};

/* Adds a copy, its texts tamed; first_signal and n_signals are set here. Returns its index or an
 * error code. */
int jm_meters_add(struct jm_meters *set, const struct jm_meter *meter, struct jm_err *err);
/* Adds a signal to the meter added last. Returns its index or an error code. */
int jm_meters_add_signal(struct jm_meters *set, const struct jm_signal *signal, struct jm_err *err);
/* Adds a meter with its n signals. */
int jm_meters_add_whole(struct jm_meters *set, const struct jm_meter *meter,
	const struct jm_signal *signal, int n, struct jm_err *err);
/* Fills covered_by and overlaps. An estimated meter never covers a measured one. */
void jm_meters_derive(struct jm_meters *set);
/*
 * The work runs on one GPU, whose UUID or bus address ("0000:1b:00.0") is given: meters of other
 * GPUs alone are marked. Returns the meter of that GPU as a whole; -1 = none reads it. *ret_slice:
 * the addresses agree and the UUIDs do not, as of a part of a GPU (MIG), whose meters then read the
 * whole.
 */
int jm_meters_own(struct jm_meters *set, const char *uuid, const char *bus, bool *ret_slice);
/* The same for each further GPU on which the work runs. */
int jm_meters_own_too(struct jm_meters *set, const char *uuid, const char *bus);
/* Does it count in the total of its origin? */
static inline bool jm_meter_counts(const struct jm_meters *set, int meter)
{
	return set->meter[meter].covered_by < 0 && !set->meter[meter].elsewhere &&
	       set->meter[meter].scope != JM_SCOPE_CONTEXT;
}
/* Index of the meter's signal of that quantity, or -1. */
int jm_meter_signal(const struct jm_meters *set, int meter, enum jm_quantity quantity);
/* What its energy is computed from, the best first: a counter, power, the average of power; -1 = it
 * has none. */
int jm_meter_energy_signal(const struct jm_meters *set, int meter);
/* What shows its power over time, the best first: power, the average of power, a counter; -1 = it
 * has none. */
int jm_meter_power_signal(const struct jm_meters *set, int meter);
/* Without what jm_meters_derive fills. *ret needs jm_meters_done. */
int jm_meters_copy(const struct jm_meters *set, struct jm_meters *ret, struct jm_err *err);
/* Drops all meters and signals from these on. */
void jm_meters_cut(struct jm_meters *set, int n, int n_signals);
void jm_meters_done(struct jm_meters *set);

/* A value carries its own validity and the time it is valid for. */
struct jm_reading {
	double value; /* NAN = no reading */
	/* on the context's clock: the sensor's own stamp where it has one, else when read */
	int64_t t_ns;
};

struct jm_signal_reading {
	int signal;
	struct jm_reading reading;
};

#endif
