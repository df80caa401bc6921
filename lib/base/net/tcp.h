/* SPDX-License-Identifier: Apache-2.0 */
/* Connections by TCP whose every wait has an end. Sockets do not block. */
#ifndef JM_TCP_H
#define JM_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "joulemark.h"

#define JM_HOST_SIZE 64 /* of a numeric address of a host */

/* "host:port" or "[address]:port"; ret_host[JM_HOST_SIZE]. */
int jm_tcp_parse(const char *address, char *ret_host, int *ret_port, struct jm_err *err);
/* Listens at this address of the host only; port 0 = a free one. */
int jm_tcp_listen(const char *host, int port, int *ret_fd, struct jm_err *err);
/* One try; -1: errno says why not. Looking up a name has the time limit of the system's
 * resolver. */
int jm_tcp_connect(const char *host, int port, int64_t until_ns);
/* The connection to a peer of another host that vanishes without closing it breaks within 8 s;
 * small messages are sent at once. */
void jm_tcp_tune(int fd);
/* True if the peer has acknowledged nothing of what was sent for 6 s: its host or the way to it is
 * down. Always false within a host, where connections are not probed (jm_tcp_tune). */
bool jm_tcp_lost(int fd);
/* Waits for these events of poll(2) on a descriptor of any kind, until t_ns on the machine's
 * clock; a signal does not end the wait. False: errno, ETIMEDOUT after that time. */
bool jm_tcp_wait(int fd, short events, int64_t until_ns);
/* The whole message, until t_ns on the machine's clock; false: errno, 0 = the peer has closed. */
bool jm_tcp_send(int fd, const void *data, size_t n, int64_t until_ns);
bool jm_tcp_receive(int fd, void *data, size_t n, int64_t until_ns);
/* The numeric address of an end of a connection, and its port; "?" and 0 if it is unknown. */
int jm_tcp_own_end(int fd, char ret_host[JM_HOST_SIZE]);
int jm_tcp_other_end(int fd, char ret_host[JM_HOST_SIZE]);

#endif
