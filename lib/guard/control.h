/* SPDX-License-Identifier: Apache-2.0 */
/* Contract of a control: one file = one kind of knob (power limit, clock...). Only the guard
 * writes. */
#ifndef JM_CONTROL_H
#define JM_CONTROL_H

#include "guard/knob_value.h"
#include "meter/meter.h"
#include "meter/source.h"

/* What a single value of a knob may be, besides the words that it takes. */
enum jm_knob_kind { JM_KNOB_NUMBER, JM_KNOB_RANGE, JM_KNOB_CHOICE };

/* What ends a setting that is not restored. Whatever has ended it leaves nothing to restore. */
enum jm_ends {
	JM_ENDS_NEVER,	/* a management controller keeps it */
	JM_ENDS_REBOOT, /* of the machine */
	JM_ENDS_DRIVER, /* when the driver is unloaded, so also a reboot */
	/* with the processes that it applies to: a device that is gone does not come back */
	JM_ENDS_PROCESS,
};

/* How the value found is known. */
enum jm_known_by { JM_KNOWN_READ, JM_KNOWN_STATED };
#define JM_KNOWN_WORDS "read", "stated"

/* One knob of one device. */
struct jm_knob {
	char name[32];		/* "gpu.power" */
	char unit[8];		/* "W" */
	char device[JM_ID_MAX]; /* stable id: GPU UUID, sysfs path */
	char label[64];		/* "GPU 0 NVIDIA H200" */
	double min, max, step;	/* in unit, of numbers and of the ends of ranges; step 0 = any */
	struct jm_knob_value fallback; /* the vendor's default */
	enum jm_knob_kind kind;
	enum jm_ends ends;
	bool unlockable;   /* takes "unlocked" */
	bool unreadable;   /* the device does not report the value that it has */
	char choices[112]; /* of JM_KNOB_CHOICE, separated by spaces */
	double settle_s;   /* until the device holds a new value */
};

#define JM_KNOBS_ABSENT 1500

struct jm_knobs {
	struct jm_knob *knob;
	int n;
	char absent
		[JM_KNOBS_ABSENT]; /* of controls of this machine that did not open, "NAME: REASON" each; "" = none */
};

/* One write of a control: text into a file; text NULL: `to` is a call of a library with its
 * arguments. */
typedef int jm_write_fn(void *arg, const char *to, const char *text, struct jm_err *err);

struct jm_control {
	const char *name;
	const char *summary;
	const char *knobs;    /* the names of all it can have, separated by spaces */
	const char *argument; /* what may follow "name:"; NULL = nothing, and `open` gets "" */
	enum jm_origin
		origin; /* JM_MEASURED = acts on the machine, JM_SIMULATED = on the simulated node */
	/* The argument that selects every device again, independent of the current environment;
	 * NULL = the one that was given. */
	const char *restore_argument;
	bool device_is_argument; /* the id of a device is the argument that opens it again */
	int (*open)(struct jm_ctx *ctx, const char *arg, struct jm_knobs *set, void **ret_state,
		struct jm_err *err);
	/* i: index among the knobs this control added. accepted: the requested value that the
	 * device accepted, which a restore sets again, unknown of an unreadable knob; enforced: the
	 * value that the device applies now, or unknown. JM_EGONE: the device has ended. */
	int (*get)(void *state, int i, struct jm_knob_value *ret_accepted,
		struct jm_knob_value *ret_enforced, struct jm_err *err);
	/* One that a user asks for is in the range by then, one that is put back may not be: the
	 * device judges it. JM_EIO: the device refuses it; JM_EPERM: this user may not set it. */
	int (*set)(void *state, int i, const struct jm_knob_value *value, struct jm_err *err);
	/* Calls fn for each write that set would make now, in their order, until one fails. NULL:
	 * it writes nothing outside of joulemark. */
	int (*writes)(void *state, int i, const struct jm_knob_value *value, jm_write_fn *fn,
		void *arg, struct jm_err *err);
	void (*close)(void *state); /* takes NULL */
	/* What knob i is, has now, and who may set it; NULL: that it is available. */
	void (*say_knob)(
		void *state, int i, const struct jm_knob *knob, jm_finding_fn *say, void *arg);
	/* In place of opening it without an argument and telling about each knob; optional. */
	void (*doctor)(struct jm_ctx *ctx, jm_finding_fn *say, void *arg);
};

extern const struct jm_control *const jm_controls[]; /* NULL-terminated, generated */

/* The control that has knobs of this name on some machine and acts on the machine itself; NULL =
 * none. */
const struct jm_control *jm_control_of_knob(const char *name);
const struct jm_control *jm_control_find(const char *name, struct jm_err *err);
/* Does the knob take the value? JM_ERANGE, JM_EUSAGE: the sentence says what it takes. */
int jm_knob_check(
	const struct jm_knob *knob, const struct jm_knob_value *value, struct jm_err *err);
#define JM_KNOB_TAKES (2 * JM_KNOB_TEXT + 40)
/* What the knob takes: "200W to 700W", "one of powersave performance". */
void jm_knob_takes_text(const struct jm_knob *knob, char *out, size_t size);
/* Is it a value of the knob's kind at all: a word, or numbers above 0? JM_ERANGE. For controls,
 * which let the device judge. */
int jm_knob_check_kind(
	const struct jm_knob *knob, const struct jm_knob_value *value, struct jm_err *err);
/* Can the value found be journalled and set again? JM_ENOSUP: it is not known, or the knob does not
 * take it. */
int jm_knob_check_found(
	const struct jm_knob *knob, const struct jm_knob_value *found, struct jm_err *err);
/* Is the word one of the knob's, or one that every knob of its kind takes? */
bool jm_knob_takes_word(const struct jm_knob *knob, const char *word);
int jm_knobs_add(struct jm_knobs *set, const struct jm_knob *knob, struct jm_err *err);
/* Has any device a knob of this name? */
bool jm_knobs_have(const struct jm_knobs *set, const char *name);
void jm_knobs_done(struct jm_knobs *set);

#endif
