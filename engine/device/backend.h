/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contract of a backend: runs the nodes of a program on one kind of device.
 *
 * `ref` is built in and defines every op; the others are plug-ins: a shared object "<name>.so" that
 * exports `jm_backend_entry`. node.h has tensors, ops and nodes. The engine calls in this order:
 *
 *	open     once
 *	select   per group, before any memory exists: in which layouts and with how much scratch the
 *	         backend can run it, or 0 = refused. A refused group of several nodes is split and
 *		its
 *	         nodes are offered one by one; a refused single node ends the build with its reason.
 *	alloc	   the whole arena, whose size follows from the choices of select
 *	build    per group: shapes, layouts and ADDRESSES are final until drop. Slow work (code
 *		   generation, algorithm choice, descriptors) belongs here
 *	capture  optional: joins all groups that run together
 *	run      per group and step, in program order. It allocates nothing and chooses nothing
 *	sync     the host waits until all queued work is done
 *	drop, release, close
 *
 * A device works asynchronously. run, copy and fill put work on a queue and may return before it is
 * done; the work of one queue is done in order. There are two queues: the compute queue, which runs
 * all work of `run`, and the copy queue, whose copies may overlap with computing. If a device has
 * `stream`, a third queue carries transfers between ranks (comm/comm.h). An event marks a point in
 * a queue; another queue or the host can wait for it. A backend that finishes all work before it
 * returns has in effect one queue and no events.
 *
 * One device is used by one thread at a time. Backends never print or exit and keep no global
 * mutable state. Errors are whole sentences in `err` (include/joulemark.h).
 */
#ifndef JM_BACKEND_H
#define JM_BACKEND_H

#include "engine/graph/node.h"

struct jm_lanes;
struct jm_backend_clock;
struct jm_backend_events;
struct jm_backend_peer;

/* Increased with any change of this file's structs, enums or their meaning. */
#define JM_BACKEND_ABI 41

/* ---- choices --------------------------------------------------------------------------------- */

/* One way to run a group. in/out: the layouts it needs, by node and operand; zero = plain. */
struct jm_choice {
	struct jm_layout in[JM_GROUP_MAX][JM_NODE_IN], out[JM_GROUP_MAX][JM_NODE_OUT];
	size_t scratch; /* bytes, used only during the group's run */
	size_t saved;	/* bytes, from the forward group until its last gradient group */
	double seconds; /* estimated cost for comparing choices; NAN = unknown */
	/* [node]: bits of operands that are not read if the forward group saves something; then
	 * they need not be kept */
	uint16_t unread[JM_GROUP_MAX];
	double flops_executed; /* NAN = the sum of the nodes */
	uint64_t tag;	       /* for the backend; passed back in build */
};
#define JM_CHOICE_MAX 4

/* ---- the backend ----------------------------------------------------------------------------- */

struct jm_device_props {
	char name[96]; /* "Intel(R) Xeon(R) Processor, 2 threads" */
	/* Identifiers that meters use: "GPU-..." (NVML), "0000:1b:00.0" (PCI); "" = none. */
	char uuid[48], bus[24];
	size_t memory_bytes, memory_alone; /* for the program: now, without others; 0 = unknown */
	bool host_memory; /* it uses this machine's memory, of which other processes use a part */
	/* Types with native instructions; the user is warned that others are slow. */
	bool native[JM_DTYPE_COUNT];
	double peak_flops[JM_DTYPE_COUNT]; /* dense, per second; NAN = unknown */
	double peak_tf32;		   /* the same for f32 operands in tf32; 0 = unknown */
	double peak_bytes;		   /* of memory, per second; NAN = unknown */
};

enum jm_copy { JM_TO_DEVICE, JM_TO_HOST, JM_ON_DEVICE };
enum jm_queue { JM_QUEUE_COMPUTE, JM_QUEUE_COPY, JM_QUEUE_COMM, JM_QUEUE_COUNT };

/*
 * dev: the pointer that open returned. The functions under "optional" may be NULL; the engine calls
 * the functions of engine/device/device.h, which have defaults for them.
 */
struct jm_backend {
	uint32_t
		abi; /* JM_BACKEND_ABI; the first member, so that every version can be recognised */
	const char *name;
	const char *summary;
	/* index: number of the device; threads: host threads, 0 = all that this process may use. */
	int (*open)(int index, int threads, void **ret_dev, struct jm_err *err);
	void (*props)(void *dev, struct jm_device_props *ret);
	/*
	 * Fills at most JM_CHOICE_MAX choices (zeroed by the caller), best first, and returns how
	 * many. 0 = refused; err holds the reason. Tensors hold the layouts that are decided
	 * already: a choice that keeps them needs no reorder. The call must be fast, without code
	 * generation.
	 */
	int (*select)(void *dev, const struct jm_group *group, struct jm_choice *choice,
		struct jm_err *err);
	int (*build)(void *dev, const struct jm_group *group, const struct jm_choice *choice,
		void **ret_exec, struct jm_err *err);
	/* Queues the work of an exec on the compute queue. */
	int (*run)(void *dev, void *exec, struct jm_err *err);
	void (*drop)(void *dev, void *exec); /* takes NULL; none of its work is queued */
	/* Zeroed, aligned to 64 bytes or more. NULL = out of memory. */
	void *(*alloc)(void *dev, size_t bytes);
	void (*release)(void *dev, void *memory); /* takes NULL */
	/* The caller must not touch either memory until an event after the copy, or sync. Host
	 * memory that is not from pinned_alloc may be copied before the function returns. */
	int (*copy)(void *dev, enum jm_queue queue, void *to, const void *from, size_t bytes,
		enum jm_copy kind, struct jm_err *err);
	int (*sync)(void *dev, struct jm_err *err);
	void (*close)(void *dev); /* takes NULL */

	/* ---- optional ---- */
	/*
	 * Joins several built groups into one exec: all that run before the micro-steps, in each
	 * micro-step, or in the update. The groups outlive it. The groups run in the given order on
	 * one queue, and a later group may reuse the memory of an earlier one. Two groups may
	 * overlap in time only if neither touches a byte that the other writes (results, scratch,
	 * saved); addresses are final. *ret_exec = NULL: the engine runs the groups one by one.
	 */
	int (*capture)(void *dev, void *const *exec, int n, void **ret_exec, struct jm_err *err);
	/* Sets every byte of device memory to `value`. Default: copies. */
	int (*fill)(void *dev, enum jm_queue queue, void *to, unsigned char value, size_t bytes,
		struct jm_err *err);
	/* Page-locked host memory, aligned to 64 bytes; NULL = out of memory. Default: ordinary
	 * memory. */
	void *(*pinned_alloc)(void *dev, size_t bytes);
	void (*pinned_release)(void *dev, void *memory); /* takes NULL */
	/* The bytes that alloc can give now. Default: unknown. */
	int (*memory_free)(void *dev, size_t *ret, struct jm_err *err);
	/*
	 * The vendor's handle of a queue, for transports; makes the device current in the calling
	 * thread. Default: there is no third queue, and ranks exchange host memory.
	 */
	int (*stream)(void *dev, enum jm_queue queue, void **ret, struct jm_err *err);
	/* A text for users: names and versions of driver and libraries; missing parts and the
	 * reason. Default: empty. */
	void (*versions)(void *dev, char *ret, size_t size);
	/*
	 * Restricts `run` to about this share of the device's units (multiprocessors of a GPU);
	 * needs no privileges. Called at most once, directly after open. Returns the units in use
	 * and in total. Default: not supported.
	 */
	int (*restrict_units)(
		void *dev, double share, int *ret_units, int *ret_of, struct jm_err *err);
	/* Tables of functions, NULL where the backend has none: */
	const struct jm_backend_events *events; /* points in queues (backend_events.h) */
	const struct jm_backend_clock *clock;	/* the device's own (backend_clock.h) */
	const struct jm_backend_peer *peer;	/* copies to another device (backend_peer.h) */
	const struct jm_lanes *lanes;		/* for transport host (comm/lanes.h) */
	/*
	 * While on, select measures nothing: what it would choose by timing, and does not know yet,
	 * asks for the most scratch that it may need. For plans that are made only to learn their
	 * size.
	 */
	void (*plan_roughly)(void *dev, bool on);
};

/* What a plug-in exports. It links its own copy of lib/base/err.c and engine/graph/tensor.c. */
JM_API const struct jm_backend *jm_backend_entry(void);

#endif
