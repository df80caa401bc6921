/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a server, and its answers while they come. */
#ifndef JM_CLIENT_ANSWERS_H
#define JM_CLIENT_ANSWERS_H

#include "client_state.h"

/* Sends the requests that have arrived, until `end`; the rest waits for the next call. JM_EIO: the
 * server fails all. */
int jm_client_send(struct jm_client *c, int64_t end, struct jm_err *err);
/* The callbacks of the HTTP client; arg: struct jm_client. */
bool jm_client_bytes(void *arg, int number, const char *bytes, size_t n);
void jm_client_end(void *arg, int number, enum jm_http_end end, long status, const char *text);

#endif
