/* SPDX-License-Identifier: Apache-2.0 */
/* Values in the text that Prometheus reads: "name{label="value",...} 12.5", one sample a line. */
#ifndef JM_METRIC_TEXT_H
#define JM_METRIC_TEXT_H

#include "joulemark.h"

/* NAME, or NAME{label="value",...}: the samples of that name that have all these labels.
 * JM_EUSAGE */
int jm_metric_selector_check(const char *selector, struct jm_err *err);
/* How many samples of the text the selector matches; *ret_sum: of their values, NAN where one is
 * not finite. */
int jm_metric_text_sum(const char *text, const char *selector, double *ret_sum);
/* Names of counters ("..._total") in the text, as "a_total, b_total"; as many as fit. */
void jm_metric_text_counters(const char *text, char *out, size_t size);

#endif
