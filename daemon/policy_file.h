/* SPDX-License-Identifier: Apache-2.0 */
/* The file of root's policy. */
#ifndef JM_POLICY_FILE_H
#define JM_POLICY_FILE_H

#include "policy.h"

/*
 * For a process that ignores SIGIO. Reads the file again if it is another one than *policy was
 * read from. JM_EPERM: it, or its folder, is not root's alone to write, or it is a link;
 * JM_EFORMAT: too large, changed while it was read, or malformed; JM_ENOENT. On an error *policy
 * is without rules.
 */
int jm_policy_load(const char *path, struct jm_policy *policy, struct jm_err *err);
/* Another file of root's: JM_EPERM as above, JM_ENOENT. */
int jm_policy_check_file(const char *path, struct jm_err *err);

#endif
