/* SPDX-License-Identifier: Apache-2.0 */
/* Dimensions: what differs between records of the same work, and its value in a record. */
#ifndef JM_REPORT_DIMENSION_H
#define JM_REPORT_DIMENSION_H

#include "series.h"

/* What differs, and the value of a dimension in a record. */
int jm_dim_find(struct jm_grouping *g, const json_t *records, struct jm_err *err);
/* Returns -1 without memory. */
int jm_dim_value(const struct jm_group_dim *dim, const json_t *record, struct jm_group_value *ret);
/* Is it a parameter of that name? "gpu.power@GPU-8f", of some of the devices, is one of gpu.power,
 * too. */
bool jm_dim_has_name(const char *key, const char *name);
/* Is this parameter, as "gpu.power" or "gpu.power@GPU-8f", one of the dimensions? */
bool jm_dim_is(const struct jm_grouping *g, const char *key);
/* Were knobs set? Their values are then the dimensions. */
bool jm_dim_has_knob(const struct jm_grouping *g);
/* The first dimension that is a limit of power, W; -1 = none. */
int jm_dim_cap(const struct jm_grouping *g);
/* 300 and "W": "300 W"; clocks in MHz. */
void jm_dim_quantity(double value, const char *unit, char *out, size_t size);
const json_t *jm_dim_parameters(const json_t *record); /* NULL = none */
/* The words of a command, with {names} where the cases of its run have other words; NULL = it is
 * none. */
const json_t *jm_dim_command(const json_t *record);
/* A leaf of the record's case.parameters by the last part of its path; NULL = not there. */
const json_t *jm_dim_parameter(const json_t *record, const char *name);
/* A leaf as a number, 8 or "8"; NAN = it is none, or NULL. */
double jm_dim_number(const json_t *leaf);
/* Identity of the work: everything but the dimensions. For the caller to free; NULL: no memory. */
char *jm_dim_series_key(const struct jm_grouping *g, const json_t *record);

#endif
