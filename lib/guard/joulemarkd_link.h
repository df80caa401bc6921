/* SPDX-License-Identifier: Apache-2.0 */
/* The way to joulemarkd, which sets knobs for users without rights, within root's policy. */
#ifndef JM_JOULEMARKD_LINK_H
#define JM_JOULEMARKD_LINK_H

#include "joulemark.h"

#define JM_JOULEMARKD_SOCKET "/run/joulemark/joulemarkd.sock" /* below ctx->root */

/* JM_ENOENT: there is no joulemarkd on this machine; JM_EPERM: what listens there is not root's. */
int jm_joulemarkd_connect(const struct jm_ctx *ctx, int *ret_fd, struct jm_err *err);
/* The error of a lease that joulemarkd has refused or ended: its reason, if it sent one. */
int jm_joulemarkd_lost(int fd, struct jm_err *err);

#endif
