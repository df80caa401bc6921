/* SPDX-License-Identifier: Apache-2.0 */
/* The profile of a run as a table: time of each kind of node, and its share of what the roofline
 * allows. */
#ifndef JM_RUN_PROFILE_H
#define JM_RUN_PROFILE_H

#include "run_parts.h"

/* ---- run_profile.c ---- */

/* Of each record that has one. */
void jm_run_print_profiles(FILE *out, const json_t *records, int width);

#endif
