/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters and running statistics of a program from a weights file of any of the layouts that
 * its model knows. */
#ifndef JM_WEIGHTS_LOAD_H
#define JM_WEIGHTS_LOAD_H

#include "data/safetensors.h"
#include "engine/graph/model.h"
#include "engine/run/program.h"

/* Whose weights they are. */
struct jm_network {
	const struct jm_model *model;
	const struct jm_values *dims;
};

struct jm_weights_loaded {
	const struct jm_weight_names *names; /* in the file; NULL = those of the graph */
	const char *prefix; /* of the names in the file that the table does not have; never NULL */
	int64_t batches;    /* the largest num_batches_tracked; 0 = none */
	size_t bytes;	    /* on the device */
	double seconds;	    /* that reading and converting took */
	/* "12 tensors of torchvision, 46.8 MB in 0.02 s"; and, where the number of classes differs,
	 * what begins anew; else "" */
	char what[96], anew[112];
};

/*
 * Writes all tensors of the built program that weights files hold; the file's types are converted.
 * The file must have each of them, of the same shape, without NaN or infinity, and nothing else;
 * only the classes may differ, and then the top gets start values of this seed. JM_EFORMAT: names
 * the file and the tensor.
 */
int jm_weights_load(struct jm_program *p, struct jm_network network, const struct jm_safetensors *s,
	uint64_t seed, struct jm_weights_loaded *ret, struct jm_err *err);

/* The key "weights" of a record. from: the file; checkpoint: that a training goes on from, after
 * its first steps; NULL = none. */
struct json_t *jm_weights_json(const char *from, const struct jm_weights_loaded *found,
	const char *checkpoint, long first);

/* The tensor of the file that the part is; NULL = it is not there. */
const struct jm_safetensor *jm_weights_part_in(const struct jm_safetensors *s,
	const struct jm_weights_loaded *found, const struct jm_weight_part *part);

/* NAME.running_var -> NAME.num_batches_tracked; false: the name is another one. */
bool jm_weights_counter(const char *name, char ret[JM_WEIGHT_NAME]);

#endif
