/* SPDX-License-Identifier: Apache-2.0 */
/* Contract of a source: one file = one kind of power sensor. See sources/null.c for the smallest
 * one. */
#ifndef JM_SOURCE_H
#define JM_SOURCE_H

#include <sys/types.h>

#include "base/option.h"
#include "meter/meter.h"

/* What `doctor` says of one thing: ok, or why not and how to mend it. */
struct jm_finding {
	bool ok;
	const char *what; /* "GPU 0 NVIDIA H200", "/sys/class/powercap/intel-rapl:0/energy_uj" */
	const char *why;  /* what is available, or why it is not */
	const char *mend; /* "" when ok */
	/* The source must first be named with options; `why` says which. Whether it is available is
	 * then unknown, and `ok` is false. */
	bool needs_argument;
	bool absent; /* this machine does not have it, which is no fault */
};
typedef void jm_finding_fn(void *arg, const struct jm_finding *finding);

enum jm_edge { JM_EDGE_BEGINS, JM_EDGE_ON, JM_EDGE_OVER };

/*
 * Receives the readings of one call of `read`. A source gives as many as it has: none, one or
 * several per signal, each with its time; the times of one signal do not run backwards. A signal
 * without a reading now gets one of NAN.
 */
struct jm_sink {
	/* One reading each of n signals that follow each other, from `first` on; they count from 0
	 * in the order in which the source added them. */
	void (*give)(struct jm_sink *sink, int first, int n, const struct jm_reading *reading);
	/*
	 * A sink may have room for a reading of each of n signals: what comes in the order of the
	 * signals, the first reading of each, is in `row`, and `next` is the signal that it ends
	 * before. All else goes through `give`. n = 0: it has no such room.
	 */
	struct jm_reading *row;
	int n, next;
};

static inline void jm_give(struct jm_sink *sink, int signal, double value, int64_t t_ns)
{
	if (signal == sink->next && signal < sink->n) {
		/* one by one: a copy of both at once would wait until both are written somewhere
		 * else */
		sink->row[signal].value = value;
		sink->row[signal].t_ns = t_ns;
		sink->next++;
	} else {
		const struct jm_reading reading = {.value = value, .t_ns = t_ns};

		sink->give(sink, signal, 1, &reading);
	}
}

/* One reading each of n signals that follow each other, from `first` on. */
static inline void jm_give_all(
	struct jm_sink *sink, int first, int n, const struct jm_reading *reading)
{
	if (first != sink->next || n < 0 || n > sink->n - first) {
		sink->give(sink, first, n, reading);
		return;
	}
	for (int i = 0; i < n; i++)
		sink->row[first + i] = reading[i];
	sink->next += n;
}

/*
 * Who used a device: a process on an undivided device, or an instance (MIG) of a divided one and
 * the processes that run in it, whose own use is not known.
 */
struct jm_device_use {
	int instance;	  /* -1 = the device is not divided */
	const char *name; /* of the instance: "MIG-..."; valid during the call */
	pid_t pid;	  /* in the first namespace of the machine; 0 = the instance as a whole */
	double use;	  /* relative to other rows of the device; NAN = not known */
	double bytes;	  /* of the device's memory that a process has; NAN = not known */
};
typedef void jm_use_fn(void *arg, const struct jm_device_use *use);

struct jm_source {
	const char *name;
	const char *summary; /* one line for `list` and the man page */
	/* What may follow "name:" (see jm_source_open); ends with a row without a name; NULL =
	 * nothing. */
	const struct jm_option *options;
	enum jm_origin origin;
	bool on_request; /* opened only when the user names it: it needs an address */
	/* Each call ends by a deadline of its own, as that of a meter on a network. Others call
	 * drivers, which may never return: a session then gives the source up
	 * (JM_DRIVER_LIMIT_NS). */
	bool keeps_time;
	/*
	 * Finds the sensors and adds their meters and signals to the set. The options' texts are
	 * valid during the call. Nothing to measure is an error (JM_ENOENT, JM_EPERM...) that says
	 * what is missing and how to mend it. Files are opened here and stay open: rights may be
	 * dropped after.
	 */
	int (*open)(struct jm_ctx *ctx, const struct jm_values *options, struct jm_meters *set,
		void **ret_state, struct jm_err *err);
	/*
	 * Gives the readings that are there now. A sensor that fails now gives NAN and the rest
	 * go on; an error is returned only when nothing more can come from this source.
	 */
	int (*read)(void *state, struct jm_sink *sink, struct jm_err *err);
	void (*close)(void *state); /* takes NULL */
	/*
	 * Optional, of a source of several devices: gives up the device for which `read`, in
	 * another thread, has been in a call of the driver since before this time of the machine's
	 * clock. True: that thread ends inside `read` when the call returns, and touches nothing
	 * else; `read` may be called again, and gives NAN for this device until then.
	 */
	bool (*leave)(void *state, int64_t since_ns);
	/* With leave: is such a call still out? The source must then not be closed. */
	bool (*waits)(void *state);
	/* Optional, of a source that reads its counters when it likes (see read_budget.h): an edge
	 * begins (called before the first reading after it), goes on, or is over. True while the
	 * edge must still be watched because a counter has not stepped since it began. */
	bool (*edge)(void *state, enum jm_edge edge);
	/* Optional: when it would like to be read next, of itself; JM_FOREVER = never. */
	int64_t (*due)(void *state);
	/*
	 * Optional: returns the processes that used the device of this meter since the previous
	 * call, at least a second ago; the first call begins. The device was idle if no row has a
	 * use above 0. JM_ENOENT: not a device of this source; JM_ENOSUP, JM_EPERM...: its driver
	 * does not report processes. It runs in another thread, concurrently with `read`.
	 */
	int (*uses)(void *state, int meter, jm_use_fn *give, void *arg, struct jm_err *err);
	/* Optional; without it `doctor` opens the source and reports what came of it. */
	void (*doctor)(struct jm_ctx *ctx, jm_finding_fn *say, void *arg);
};

extern const struct jm_source
	*const jm_sources[]; /* NULL-terminated, generated from the build rows */

/* By name, with a 'did you mean' in the error. */
const struct jm_source *jm_source_find(const char *name, struct jm_err *err);
/*
 * Opens a source with its options as text: "KEY=VALUE,KEY=VALUE". A value without a key belongs to
 * the first row that has none yet; the name of a yes-or-no row alone means yes. "" = no options.
 */
int jm_source_open(const struct jm_source *source, struct jm_ctx *ctx, const char *options,
	struct jm_meters *set, void **ret_state, struct jm_err *err);
/*
 * Length of the first source of a list. "nvml,snmp:host=pdu1,outlet=3,rapl" has three: a part that
 * begins with a digit or is KEY=VALUE belongs to the source before it.
 */
size_t jm_source_length(const char *list);

#endif
