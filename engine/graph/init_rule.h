/* SPDX-License-Identifier: Apache-2.0 */
/* Rules for start values from papers, by name, and the standard deviations they give. */
#ifndef JM_INIT_H
#define JM_INIT_H

#include "graph.h"

/* For the command line: the rules that can replace that of the model, NULL-terminated, "model"
 * first. */
extern const char *const jm_init_names[];
/* The rule with this name. */
enum jm_init jm_init_find(const char *name);
const char *jm_init_name(enum jm_init rule);
const char *jm_init_source(enum jm_init rule); /* "arXiv 1502.01852"; "" = needs no source */

/* The standard deviation of a standard normal distribution that is cut at -2 and 2. */
#define JM_INIT_CUT_STD 0.87962566103423978

/* The standard deviation of a parameter's start values, by its rule and shape; 0 for constants. */
double jm_init_std(const struct jm_graph *g, const struct jm_cell *c);

/* Changes the rule of the weights of layers; tables and vectors keep theirs. */
void jm_init_replace(struct jm_graph *g, enum jm_init rule);
/* The last batch norm of each residual block starts at zero (Goyal et al., arXiv 1706.02677). */
int jm_init_zero_gamma(struct jm_graph *g, struct jm_err *err);

#endif
