/* SPDX-License-Identifier: Apache-2.0 */
/* The end of serve: the record, the files, and some requests again, each alone. */
#ifndef JM_SERVE_VERIFY_H
#define JM_SERVE_VERIFY_H

#include "serve_state.h"

/* As verify of a workload; state: struct serve. Unfinished requests lose what the cache has of
 * them: nothing runs after this. */
int jm_serve_verify(void *state, struct jm_err *err);

#endif
