/* SPDX-License-Identifier: Apache-2.0 */
/*
 * joulemark - what AI work costs: speed, power and energy of a machine.
 *
 * The one installed header. Conventions that hold everywhere:
 *  - A function that can fail returns 0 or a negative JM_E* code and writes one full sentence
 *    (what, on
 *    what, why, what to do next) into the caller's struct jm_err. The first error wins.
 *  - The library never prints, exits or aborts. Results come last, named ret_*, untouched on
 *    failure.
 *  - SI units; names carry the unit where a bare number crosses an interface (t_ns, joules, watts).
 *  - NAN means "no reading". It is never 0 and never the old value.
 */
#ifndef JOULEMARK_H
#define JOULEMARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define JM_VERSION "0.1.0"
#define JM_API	   __attribute__((visibility("default")))

/* JM_VERSION of the library that is loaded, which may be another one than that of this header. */
JM_API const char *jm_version(void);

/* ---- errors ---------------------------------------------------------------------------------- */

#define JM_ERRORS(X)                                                                               \
	X(USAGE, "wrong usage")                                                                    \
	X(NOENT, "not there")                                                                      \
	X(PERM, "no permission")                                                                   \
	X(NOSUP, "not supported here")                                                             \
	X(RANGE, "out of range")                                                                   \
	X(BUSY, "held by another process")                                                         \
	X(GONE, "disappeared")                                                                     \
	X(IO, "input or output failed")                                                            \
	X(FORMAT, "not in the expected form")                                                      \
	X(VERSION, "made by another version")                                                      \
	X(NOMEM, "out of memory")                                                                  \
	X(CHILD, "a child process failed")                                                         \
	X(INTR, "interrupted")                                                                     \
	X(BUG, "a defect in joulemark")

enum jm_code {
	JM_OK = 0,
#define X(name, text) JM_E##name##_POSITIVE,
	JM_ERRORS(X)
#undef X
#define X(name, text) JM_E##name = -JM_E##name##_POSITIVE,
		JM_ERRORS(X)
#undef X
};

struct jm_err {
	int code; /* 0 = none yet */
	char text[512];
};
#define JM_ERR_INIT                                                                                \
	{                                                                                          \
		.code = 0, .text = ""                                                              \
	}

/* Sets code and sentence unless an error is there already; err may be NULL. Returns `code`. */
JM_API int jm_err_set(struct jm_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
#ifdef __clang_analyzer__ /* let it see that the code comes back, or every failure looks like success */
#define jm_err_set(err, code, ...) ((void)(jm_err_set)((err), (code), __VA_ARGS__), (code))
#endif
/* "no permission" for JM_EPERM and so on; never NULL. */
JM_API const char *jm_err_name(int code);

/* ---- context: where things are and what time it is ------------------------------------------- */

enum jm_level { JM_DEBUG, JM_INFO, JM_WARNING };

/* What would otherwise be global; outlives everything opened with it. */
struct jm_ctx;

/* Reads JM_ROOT (ignored when privileges are raised) and takes the real clock. */
JM_API int jm_ctx_new(struct jm_ctx **ret, struct jm_err *err);
JM_API void jm_ctx_free(struct jm_ctx *ctx); /* takes NULL */
/* The same in memory of the caller: jm_ctx_bytes() bytes, aligned as by malloc. There is nothing to
 * free. */
JM_API size_t jm_ctx_bytes(void);
JM_API int jm_ctx_init(struct jm_ctx *ctx, struct jm_err *err);
/* `log` gets each line of the log, from any thread; NULL, the initial value, discards them. To be
 * set while nothing is open with the context. */
JM_API void jm_ctx_set_log(struct jm_ctx *ctx,
	void (*log)(void *arg, enum jm_level level, const char *line), void *arg);
/* Monotonic time of the context's clock, ns. */
JM_API int64_t jm_ctx_now(const struct jm_ctx *ctx);
JM_API void jm_log(const struct jm_ctx *ctx, enum jm_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- measuring phases of one's own program --------------------------------------------------- */

/*
 *	jm_ctx_new(&ctx, &err);
 *	jm_measurement_start(ctx, NULL, 0, &m, &err);
 *	phase = jm_measurement_begin(m, "epoch 1", &err);
 *	... work ...
 *	jm_measurement_credit(m, phase, images);
 *	jm_measurement_end(m, phase);
 *	jm_measurement_stop(m, &err);
 *	jm_measurement_json(m, phase, &text, &err);
 *
 * Phases may nest and overlap and be opened from any thread; the other calls are for one thread.
 */
struct jm_measurement;

/* sources: as `measure --source`, "nvml,rapl"; NULL = all that measure here. interval_ns: between
 * readings; 0 = by the sensors' refresh. Sampling runs when it returns. */
JM_API int jm_measurement_start(struct jm_ctx *ctx, const char *sources, int64_t interval_ns,
	struct jm_measurement **ret, struct jm_err *err);
/* Returns the phase's number, from 0, or an error code. */
JM_API int jm_measurement_begin(struct jm_measurement *m, const char *name, struct jm_err *err);
JM_API void jm_measurement_end(struct jm_measurement *m, int phase);
/* Items done in the phase: images, tokens. */
JM_API void jm_measurement_credit(struct jm_measurement *m, int phase, double items);
/* Waits at most one refresh of the sensors, for a reading after the end of the last phase. */
JM_API int jm_measurement_stop(struct jm_measurement *m, struct jm_err *err);
/* After stop. Meters, total and quality of the phase, and all phases, as in
 * docs/record.schema.json. The text is the caller's to free(). */
JM_API int jm_measurement_json(
	struct jm_measurement *m, int phase, char **ret_text, struct jm_err *err);
/* After stop. Power of a meter in the phase as rows of a table: row 0 is the beginning of the
 * phase, row i is i * interval_ns later, the last row is the end. Row 0 has the power that was read
 * there, each other row the mean since the row before; NAN = no reading. `meter` is its id in the
 * JSON; JM_ENOENT: it does not report power. The watts are the caller's to free(). */
JM_API int jm_measurement_power(struct jm_measurement *m, int phase, const char *meter,
	int64_t interval_ns, double **ret_watts, int *ret_rows, struct jm_err *err);
JM_API void jm_measurement_free(struct jm_measurement *m); /* takes NULL */

/*
 * For a program that runs under `joulemark measure` or `joulemark run`: the phase `name` begins
 * now; `items` (NAN = unknown) were done since the previous mark. JM_ENOENT when the program runs
 * outside of both.
 */
JM_API int jm_mark(const char *name, double items, struct jm_err *err);

/*
 * The same for many marks: the connection to that joulemark is opened once. Marks may be sent from
 * any thread, and from a child of fork. JM_EGONE: the program has closed the descriptor; free the
 * marker and open another.
 */
struct jm_marker;
JM_API int jm_marker_new(struct jm_marker **ret, struct jm_err *err);
JM_API int jm_marker_mark(
	struct jm_marker *marker, const char *name, double items, struct jm_err *err);
JM_API void jm_marker_free(struct jm_marker *marker); /* takes NULL */

#ifdef __cplusplus
}
#endif
#endif
