/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the values of a parameter, also of one that the device has in 8 bits. */
#ifndef JM_WRITE_VALUES_H
#define JM_WRITE_VALUES_H

#include "program.h"

/* The type in which jm_program_write_values takes the values of t: its own, or the compute type
 * where t is in 8 bits. */
enum jm_dtype jm_program_value_type(const struct jm_program *p, const struct jm_tensor *t);
/*
 * As jm_program_write, with values of that type. To 8 bits each row is rounded as op quantize does
 * it, and the factors of the rows are written, too; several threads share the rows.
 */
int jm_program_write_values(
	struct jm_program *p, struct jm_tensor *t, const void *from, struct jm_err *err);
/* n rows of `width` values to codes of e4m3, each row with a factor of its own, whose inverse is
 * written, too. */
void jm_quantize_rows(enum jm_dtype type, const void *from, int64_t n, int64_t width,
	uint8_t *codes, float *inverse);

#endif
