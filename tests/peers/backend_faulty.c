/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend with wrong products: the cpu backend, whose plug-in is in the same folder, with a value
 * added to one element of every N-th product. JM_FAULTY=N; 0 or not set: no product is wrong.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/tensor.h"
#include "engine/device/backend.h"

#define PRODUCTS 4096

static struct jm_backend faulty;
static const struct jm_backend *cpu;
static struct {
	void *exec;
	struct jm_tensor *y;
} products[PRODUCTS];
static int n_products, every;
static long runs;

static int faulty_build(void *dev, const struct jm_group *group, const struct jm_choice *choice,
	void **ret_exec, struct jm_err *err)
{
	int code = cpu->build(dev, group, choice, ret_exec, err);
	enum jm_op op = group->node[0]->op;

	if (!code && (op == JM_OP_LINEAR || op == JM_OP_ATTENTION) && n_products < PRODUCTS) {
		products[n_products].exec = *ret_exec;
		products[n_products++].y = group->node[0]->out[0];
	}
	return code;
}

static void spoil(const struct jm_tensor *y)
{
	int64_t at = jm_tensor_count(y) / 2;

	for (int64_t i = at; i < at + 1; i++)
		jm_element_set(y->type, y->data, i, jm_element_get(y->type, y->data, i) + 1000);
}

static int faulty_run(void *dev, void *exec, struct jm_err *err)
{
	int code = cpu->run(dev, exec, err);

	for (int i = 0; i < n_products; i++)
		if (products[i].exec == exec && every && ++runs % every == 0)
			spoil(products[i].y);
	return code;
}

/* Another program's exec may come to the same address. */
static void faulty_drop(void *dev, void *exec)
{
	for (int i = 0; i < n_products; i++)
		if (products[i].exec == exec)
			products[i--] = products[--n_products];
	cpu->drop(dev, exec);
}

static const struct jm_backend *open_cpu(void)
{
	char path[PATH_MAX];
	const struct jm_backend *(*entry)(void);
	void *library, *found;

	snprintf(path, sizeof path, "%s/cpu.so", getenv("JM_FAULTY_FROM"));
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	found = library ? dlsym(library, "jm_backend_entry") : NULL;
	memcpy(&entry, &found, sizeof found);
	return found ? entry() : NULL;
}

const struct jm_backend *jm_backend_entry(void)
{
	const char *text = getenv("JM_FAULTY");

	every = text ? (int)strtol(text, NULL, 10) : 0;
	cpu = open_cpu();
	if (!cpu)
		return NULL;
	faulty = *cpu;
	faulty.name = "cpu";
	faulty.build = faulty_build;
	faulty.run = faulty_run;
	faulty.drop = faulty_drop;
	return &faulty;
}
