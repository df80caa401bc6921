/* SPDX-License-Identifier: Apache-2.0 */
/* Start values by name: rules from papers, with what they make of a parameter's shape. */
#ifndef JM_INIT_H
#define JM_INIT_H

#include "graph.h"

/* For the command line: the rules that may replace a model's own, NULL-terminated, "model" first. */
extern const char *const jm_init_names[];
/* Of one of them, or of a rule in the graph. */
enum jm_init jm_init_find(const char *name);
const char *jm_init_name(enum jm_init rule);
const char *jm_init_source(enum jm_init rule); /* "arXiv 1502.01852"; "" = it goes without saying */

/* Standard deviation of a normal distribution of which only -2 to 2 is left. */
#define JM_INIT_CUT_STD 0.87962566103423978

/* The standard deviation a parameter starts with, by its rule and shape; 0 for constants. */
double jm_init_std(const struct jm_graph *g, const struct jm_cell *c);

/* Gives the weights of layers another rule; tables and vectors keep theirs. */
void jm_init_replace(struct jm_graph *g, enum jm_init rule);
/* The last batch norm of each residual block starts at zero (Goyal et al., arXiv 1706.02677). */
int jm_init_zero_gamma(struct jm_graph *g, struct jm_err *err);

#endif
