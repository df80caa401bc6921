/* SPDX-License-Identifier: Apache-2.0 */
/* libmicrohttpd, of which each server opens the functions that it calls. */
#ifndef JM_VENDOR_MICROHTTPD_LIBRARY_H
#define JM_VENDOR_MICROHTTPD_LIBRARY_H

#include "library.h"

#include <microhttpd.h>

/* As jm_library_open, with these symbols. */
int jm_microhttpd_open(const struct jm_symbol *symbols, size_t n, void *calls, struct jm_err *err);

#endif
