/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of the table of a record's keys. */
#ifndef JM_RECORD_KEYS_PARTS_H
#define JM_RECORD_KEYS_PARTS_H

#include "base/text/keys.h"

#define TEXT(n, f)     .name = n, .type = JM_KEY_TEXT, .flags = f
#define WORD(n, f)     .name = n, .type = JM_KEY_WORD, .flags = f
#define ID(n, f)       .name = n, .type = JM_KEY_ID, .flags = f
#define INTEGER(n, f)  .name = n, .type = JM_KEY_INTEGER, .flags = f
#define NUMBER(n, f)   .name = n, .type = JM_KEY_NUMBER, .flags = f
#define FLAG(n, f)     .name = n, .type = JM_KEY_FLAG, .flags = f
#define OBJECT(n, f)   .name = n, .type = JM_KEY_OBJECT, .flags = f
#define TEXTS(n, f)    .name = n, .type = JM_KEY_TEXTS, .flags = f
#define NUMBERS(n, f)  .name = n, .type = JM_KEY_NUMBERS, .flags = f
#define LIST(n, f)     .name = n, .type = JM_KEY_LIST, .flags = f
#define SCALAR(n, f)   .name = n, .type = JM_KEY_SCALAR, .flags = f
#define COUNT(n, f)    INTEGER(n, f), .min = 0, .max = INT_MAX
#define POSITIVE(n, f) NUMBER(n, f), .min = 0, .max = JM_KEY_HUGE

extern const struct jm_key jm__total_keys[], jm__idle_gpus_keys[], jm__meter_keys[],
	jm__context_keys[], jm__quality_keys[], jm__phase_keys[], jm__attached_keys[],
	jm__own_share_keys[], jm__repeats_keys[], jm__job_keys[], jm__items_from_keys[],
	jm__figures_keys[];
extern const struct jm_key jm__weights_keys[], jm__loss_scale_keys[], jm__evaluation_keys[],
	jm__data_keys[], jm__until_keys[];
extern const struct jm_key jm__communication_keys[], jm__transfer_keys[], jm__overlap_keys[];
extern const struct jm_key jm__serving_keys[], jm__tune_keys[], jm__policy_keys[],
	jm__budget_keys[];

#endif
