/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark compare --systems and --published: the records of all files in one table for each
 * work. */
#ifndef JM_COMPARE_SYSTEMS_H
#define JM_COMPARE_SYSTEMS_H

#include "compare_parts.h"

/* --systems and --published; the exit status. */
int jm_compare_systems(struct jm_cli *cli, const struct jm_compare_call *call);

#endif
