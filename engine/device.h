/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open device: a backend that is built in or loaded. "ref" is always there; "NAME" or "NAME:INDEX"
 * loads NAME.so from the folder JM_BACKENDS names, or from `backends` beside the program, else from
 * the installed plug-ins.
 */
#ifndef JM_DEVICE_H
#define JM_DEVICE_H

#include "backend.h"

struct jm_device {
	const struct jm_backend *backend;
	void *dev;
	void *library; /* NULL = built in */
	struct jm_device_props props;
};

/* threads: of the host, 0 = all this process may use. */
int jm_device_open(const char *text, int threads, struct jm_device *ret, struct jm_err *err);
void jm_device_close(struct jm_device *d);

/* Could the device's backend be loaded? 0, or the reason; opens nothing. */
int jm_backend_check(const char *name, struct jm_err *err);

/* The i-th backend of this source, whether built or not, "ref" last; NULL behind it. */
const char *jm_backend_name(size_t i);

/* Could there be such a device? Neither opened nor loaded; JM_EUSAGE with the names there are. */
int jm_device_check(const char *text, struct jm_err *err);

#endif
