/* SPDX-License-Identifier: Apache-2.0 */
/* Resources of a management controller that speaks Redfish (DMTF DSP0268), by HTTPS. */
#ifndef JM_VENDOR_REDFISH_H
#define JM_VENDOR_REDFISH_H

#include "https.h"

#define JM_REDFISH_CHASSIS 64

/* The path that this member of the resource leads to; NULL = none. */
const char *jm_redfish_link(const json_t *resource, const char *key);

/* Returns true to end the search. */
typedef bool jm_redfish_fn(void *arg, const char *path, const char *id);
/* Calls fn with the path and the id of each chassis, or of the wanted one alone (NULL = each), for
 * at most JM_REDFISH_CHASSIS of them. An error: the list of them cannot be read. */
int jm_redfish_each_chassis(struct jm_https *https, const char *wanted, jm_redfish_fn *fn,
	void *arg, struct jm_err *err);

#endif
