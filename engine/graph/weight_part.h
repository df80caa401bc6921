/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tensors of a network are called, and how they lie, in the weights files of other
 * programs: a table of each model, and the list of parts that it gives for a graph. A matrix here
 * may be several tensors there (queries, keys, values).
 */
#ifndef JM_WEIGHT_PART_H
#define JM_WEIGHT_PART_H

#include "graph.h"
#include "base/option.h"

/*
 * A row: `own` is a name of the graph in which each '*' stands for one or more characters, `file`
 * the name in the file, where they follow in the same order. Rows of the same `own`, one after the
 * other, name the parts of one tensor, from its first row on. A tensor without a row has the same
 * name in both.
 */
struct jm_weight_name {
	const char *own, *file;
	int ones;	 /* dims of 1 in front of the others in the file */
	bool transposed; /* a matrix is [from, to] in the file */
	bool flat;	 /* a filter is a matrix of as many rows in the file */
	const char *
		share; /* the option whose value is in proportion to the part's rows; NULL = equal parts */
	/* a second name that a file may have for the same values (an output that shares the table
	 * of the tokens); not written, and not used where the network has a tensor of this name */
	const char *tied;
};

/* A network that another one is made of: its names begin with `own` in the graph, with `file` in
 * the file, which a folder of this name before the '/' has (jm_safetensors_open). */
struct jm_weight_group {
	const char *own, *file;		   /* "vae.", "vae/" */
	const struct jm_weight_name *name; /* of what follows; terminated by own NULL */
};

/* The names of one other program; the first of a model's are those that are written. */
struct jm_weight_names {
	const char *of;			   /* "torchvision" */
	const struct jm_weight_name *name; /* terminated by own NULL */
	/* in place of `name`, terminated by own NULL; NULL = the network is no such one */
	const struct jm_weight_group *group;
	const char *prefix; /* of all names in the file, which some files omit; NULL = none */
	/* patterns of fnmatch for what is no weight (masks, tables of angles); NULL, or terminated
	 * by NULL */
	const char *const *ignored;
};

#define JM_WEIGHT_NAME 256
#define JM_WEIGHT_DIMS (JM_DIMS + 2)

/* A tensor in the file: all of a tensor of the graph, or some of its rows. */
struct jm_weight_part {
	char name[JM_WEIGHT_NAME];
	const char *tied; /* as above; without '*' */
	struct jm_tensor *tensor;
	/* of the whole tensor, also where ranks share it (tensor_parallel.h): elements with
	 * padding, those of a row, and the part's rows, without padding */
	int64_t count, width, row, rows;
	int rank;
	int64_t dim[JM_WEIGHT_DIMS]; /* in the file */
	bool transposed;
};

/* Does the pattern of fnmatch fit a name that the tensor of the graph has in a file? names:
 * terminated by `of` NULL, or NULL. */
bool jm_weight_name_fits(const struct jm_weight_names *names, const char *own, const char *pattern);

/* Is it one that a weights file holds: a parameter, or a running mean or variance of a norm? */
bool jm_weight_is_kept(const struct jm_cell *c);

/*
 * The parts of all such tensors of the graph, in its order; to be freed by free(). names: NULL =
 * they have the names of the graph. dims: the options of the model. JM_EBUG: a name is too long, or
 * a table does not fit its network.
 */
int jm_weight_parts(const struct jm_graph *g, const struct jm_weight_names *names,
	const struct jm_values *dims, struct jm_weight_part **ret, int *ret_n, struct jm_err *err);

#endif
