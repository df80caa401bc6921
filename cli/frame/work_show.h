/* SPDX-License-Identifier: Apache-2.0 */
/* Running work as text and JSON, for `status` and `top`. */
#ifndef JM_WORK_SHOW_H
#define JM_WORK_SHOW_H

#include "measure/command/work_status.h"

#include <jansson.h>
#include <stdio.h>

/* Each on separate lines: "run gpt-117m: case 3 of 12, steady, N items/s, N W measured, runs for 1
 * min, about 12 min left, process N, store a.db" */
void jm_work_print(const struct jm_work_list *list, FILE *out, int width);
/* [{...}]; unknown is null. */
json_t *jm_work_json(const struct jm_work_list *list);
/* "59 s", "12 min", "1.7 h" */
void jm_work_time_text(double seconds, char *out, size_t size);

#endif
