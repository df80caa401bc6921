/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that is opened when it is first needed, so that a program starts without it: its names,
 * its functions in one table, and what to do where it is missing.
 */
#ifndef JM_VENDOR_LIBRARY_H
#define JM_VENDOR_LIBRARY_H

#include <stddef.h>

#include "joulemark.h"

struct jm_symbol {
	const char *name;
	size_t offset; /* of its pointer in the struct of calls */
};

struct jm_library {
	const char *title;    /* "libmodbus" */
	const char *variable; /* environment variable that names another file; NULL = none */
	const char *names[4]; /* tried in this order; the rest NULL */
	const char *mend;     /* "install Debian's libmodbus5" */
	/* A file of the kernel without which the library is of no use: it is then not looked for,
	 * unless the variable is set; NULL = none. */
	const char *driver;
	const struct jm_symbol *symbols;
	size_t n_symbols;
	size_t n_optional; /* the last ones: where one is missing, its pointer stays as it was */
};

/* Fills the pointers of `calls`. The library is never unloaded: its threads and handlers may
 * outlive a user. */
int jm_library_open(const struct jm_library *library, void *calls, struct jm_err *err);

#endif
