/* SPDX-License-Identifier: Apache-2.0 */
/* Energy of the steady window of a run that serves a language model. */
#ifndef JM_SERVING_ENERGY_H
#define JM_SERVING_ENERGY_H

#include <jansson.h>

#include "meter/meter.h"

/* J; NAN = unknown. */
struct jm_serving_energy {
	double joules; /* of the window: the topmost meters of one origin (jm_metric_origin) */
	double output_token; /* of each token of an answer that was made in it */
	double token;	     /* of these and the tokens of prompts that were read in it */
	double request;	     /* of each request that was done in it */
	enum jm_origin origin;
};

/* Of a run whose steps compute prompts and answers, as a model has it: estimated, J; NAN =
 * unknown. */
struct jm_serving_split {
	double prefill, decode, error; /* error: of both, ±, to the bounds of the model */
	double input_token;	       /* prefill by the tokens of prompts that were read */
	double output_token;	       /* decode by the tokens after the first that were made */
};

struct jm_serving_split jm_serving_split_of(const json_t *record, double add_watts);
/* add_watts: of the node, which no meter saw, as in jm_metric_measure. */
struct jm_serving_energy jm_serving_energy_of(const json_t *record, double add_watts);
/* Adds joules_per_output_token, joules_per_token and joules_per_request to serving.window, and
 * joules to serving.split; both may be missing. */
void jm_record_serving_energy(json_t *record);

#endif
