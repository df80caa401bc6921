/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One option row feeds the command line, the plan, the sweep axis, the help, the man page and the
 * result column. Values are checked against their row where they are parsed. A row may be bound to
 * a field of a struct, which jm_values_fill writes; the code then reads the field.
 */
#ifndef JM_OPTION_H
#define JM_OPTION_H

#include "joulemark.h"

#include <stddef.h>

enum jm_type { JM_INT, JM_REAL, JM_TEXT, JM_CHOICE, JM_FLAG, JM_DURATION /* seconds */ };

/* What a field of a struct holds of a value; JM_FIELD_NONE: the row is not bound to a field. */
enum jm_field {
	JM_FIELD_NONE,
	JM_FIELD_TEXT,
	JM_FIELD_TEXTS,
	JM_FIELD_BOOL,
	JM_FIELD_INT,
	JM_FIELD_LONG,
	JM_FIELD_REAL,
};

struct jm_option {
	const char *name; /* without dashes: "batch" */
	enum jm_type type;
	const char *unit;     /* "" = none; a value may carry it: 100ms, 300W */
	double min, max;      /* of INT, REAL and DURATION; min > max = no limits */
	const char *fallback; /* text of the default; NULL = none (unset) */
	/* CHOICE: NULL-terminated; INT, REAL: words that may stand for the number, which is NAN
	 * then */
	const char *const *choices;
	const char *argument; /* for the help: "FILE", "N"; NULL = made from the type */
	const char *help;
	const char *
		heading; /* for the help: of this row and those that follow; NULL = that of the row before */
	bool usual;  /* the short help describes it; it names the others */
	bool repeat; /* may be given several times (TEXT only) */
	/* TEXT: may the value be this one? An error says what to give. NULL = any text */
	int (*check)(const char *text, struct jm_err *err);
	/* repeat: does this word, which follows the value, belong to the option too, as in --option
	 * A B? */
	bool (*takes_word)(const char *word);
	/* another option of the same rows, without which this one has no effect; NULL = none */
	const char *needs;
	/* TEXT: the value of the option given alone; a value then follows "=". NULL = it needs a
	 * value */
	const char *bare;
	/* bare: may this next word be the value, too? NULL = never */
	bool (*takes_next)(const char *word);
	unsigned int use;
	/* Set by JM_BIND: the field, its offset, and the size of the struct. */
	enum jm_field field;
	size_t offset, size;
	/* Set by JM_GIVEN: the offset of the field, in the same struct */
	bool has_given;
	size_t given;
};

/*
 * In place of .type: the type of a row, and the field of a struct that jm_values_fill writes. A
 * field whose type does not fit the option's is an error of the compiler.
 *
 *	TEXT		const char *; char *const *: all values of a row that repeats,
 *			NULL-terminated, NULL = none
 *	CHOICE		const char *; int or an enum: the index in .choices, which must be in the
 *			order of the enum
 *	FLAG		bool
 *	INT		int, long (int64_t), unsigned or not; double, in which a word is NAN
 *	REAL		double, in .unit
 *	DURATION	double, in seconds; long (int64_t), in nanoseconds
 *
 * Without a value, NULL, false and NAN are written, and integers are left as they are.
 */
#define JM_BIND(TYPE, STRUCT, FIELD)                                                               \
	.type = TYPE, .offset = offsetof(STRUCT, FIELD), .size = sizeof(STRUCT),                   \
	.field = _Generic(((STRUCT *)NULL)->FIELD, TYPE##_FIELDS)

/* Beside JM_BIND: the bool of the same struct that says whether the user gave the option, and the
 * value is not the default. */
#define JM_GIVEN(STRUCT, FIELD)                                                                    \
	.has_given = _Generic(((STRUCT *)NULL)->FIELD, bool                                        \
			      : true),                                                             \
	.given = offsetof(STRUCT, FIELD)

#define JM_TEXT_FIELDS	   const char * : JM_FIELD_TEXT, char *const * : JM_FIELD_TEXTS
#define JM_SHORT_FIELDS	   int : JM_FIELD_INT, unsigned : JM_FIELD_INT
#define JM_CHOICE_FIELDS   JM_SHORT_FIELDS, const char * : JM_FIELD_TEXT
#define JM_LONG_FIELDS	   long : JM_FIELD_LONG, unsigned long : JM_FIELD_LONG
#define JM_INT_FIELDS	   JM_SHORT_FIELDS, JM_LONG_FIELDS, double : JM_FIELD_REAL
#define JM_FLAG_FIELDS	   bool : JM_FIELD_BOOL
#define JM_REAL_FIELDS	   double : JM_FIELD_REAL
#define JM_DURATION_FIELDS long : JM_FIELD_LONG, double : JM_FIELD_REAL

/* jm_option.use, of the options of `run` */
enum {
	JM_OPTION_SWEPT = 1, /* a list is swept */
	JM_OPTION_OF_CALL =
		2, /* concerns one call, and not what is run: it is no key of a plan file */
	JM_OPTION_OF_WORK = 4,	  /* of workloads and models only */
	JM_OPTION_OF_COMMAND = 8, /* of outside commands only */
	JM_OPTION_WRITES =
		32, /* of a workload: names a file that it writes, which changes nothing else */
	JM_OPTION_COMMAS =
		16, /* of a workload: commas are part of the value; only a list of a plan file is swept */
};

/* A value of an option; text is owned by the jm_values. */
struct jm_value {
	const struct jm_option *option;
	char *text;    /* canonical: what was given, without superfluous signs; NULL = unset */
	double number; /* INT, REAL, DURATION (s), FLAG (0/1) */
	char **texts;  /* repeat: all of them, NULL-terminated */
	int n_texts;
	bool given; /* by the user, not the default */
};

struct jm_values {
	struct jm_value *value; /* one per row, in the order of the rows */
	int n;
};

/* The row of that name; NULL: there is none. rows may be NULL. */
const struct jm_option *jm_option_find(const struct jm_option *rows, const char *name);

/* rows: terminated by a row whose name is NULL; may be NULL. Defaults are filled in. */
int jm_values_init(struct jm_values *v, const struct jm_option *rows, struct jm_err *err);
/* Appends rows, with their defaults. On an error the values are as before. */
int jm_values_add(struct jm_values *v, const struct jm_option *rows, struct jm_err *err);
/* An independent copy, which has given what the other has given. */
int jm_values_copy(const struct jm_values *from, struct jm_values *ret, struct jm_err *err);
int jm_values_set(struct jm_values *v, const char *name, const char *text, struct jm_err *err);
/* The value of a row by name. The name must exist: asking for another is a defect. */
const struct jm_value *jm_values_get(const struct jm_values *v, const char *name);
double jm_values_number(const struct jm_values *v, const char *name);
const char *jm_values_text(const struct jm_values *v, const char *name); /* NULL = unset */
bool jm_values_given(const struct jm_values *v, const char *name);
/* Does the option have its default? For the options of a case, which names them all, so that it is
 * not known which the user gave. */
bool jm_values_is_default(const struct jm_values *v, const char *name);
/* Writes the values of the rows of jm_values_init to the fields that they are bound to. Texts
 * belong to v. */
#define JM_FILL(v, ret) jm_values_fill(v, ret, sizeof(*(ret)))
/* size: of *ret; another one than that of the struct of the rows is a defect, and nothing is
 * written. */
void jm_values_fill(const struct jm_values *v, void *ret, size_t size);
void jm_values_done(struct jm_values *v);

/*
 * A number with its unit: "100ms" as seconds, "300W", "1.2kW", "1200MHz" as Hz. unit: the base unit
 * ("s", "W", "Hz", "" = none). require: a bare number is refused (JM_EUSAGE).
 */
int jm_parse_quantity(
	const char *text, const char *unit, bool require, double *ret, struct jm_err *err);

/* The nearest of n words if it is near enough to be meant, else NULL. */
const char *jm_did_you_mean(const char *word, const char *const *words, size_t n);

#endif
