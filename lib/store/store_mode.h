/* SPDX-License-Identifier: Apache-2.0 */
/* How a store is opened. */
#ifndef JM_STORE_MODE_H
#define JM_STORE_MODE_H

enum jm_store_mode {
	JM_STORE_READ,	/* must exist; may be read while a run writes it */
	JM_STORE_WRITE, /* made if it is not there; one writer at a time (JM_EBUSY) */
	JM_STORE_TRY,	/* would it be opened for writing? Locks nothing and waits for nothing */
};

/* A file as a later writer found it: open, so that no other file gets its number. */
struct jm_store_file {
	int fd; /* -1 = there was none */
};

#endif
