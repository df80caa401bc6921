/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend `cpu`: oneDNN 2.x for matrix products and convolutions, own vectorised kernels for all
 * other ops. All work is synchronous; all threads belong to OpenMP's pool.
 */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include "backends/cpu/device/peak.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/ops/ops_quantize.h"
#include "backends/cpu/ops/layout.h"
#include "backends/cpu/ops/choices.h"

#define HUGE_PAGE ((size_t)2 << 20)
/* Layers of equal shape share a primitive; a network has few different shapes. */
#define CACHED_PRIMITIVES 64

/* ---- the device ------------------------------------------------------------------------------ */

/* Measures the peaks of which utilisation is a share. No choice depends on them: a busy machine, or
 * another thread on the same core, would change the bits of a result. */
static void measure(struct cpu_dev *dev)
{
	double f32 = dev->kernels->gemms->peak(), bf16 = cpu_peak_bf16();

	dev->has_bf16 = bf16 > 0;
	dev->peak_f32 = f32 > 0 ? f32 * dev->threads : NAN;
	dev->peak_bf16 = cpu_has_tiles() ? NAN : dev->threads * (bf16 > f32 ? bf16 : f32);
}

static void cpu_close(void *arg)
{
	struct cpu_dev *dev = arg;

	if (!dev)
		return;
	dnnl_stream_destroy(dev->stream);
	dnnl_engine_destroy(dev->engine);
	free(dev);
}

static int cpu_open(int index, int threads, void **ret_dev, struct jm_err *err)
{
	struct cpu_dev *dev;
	dnnl_status_t s;

	if (index != 0)
		return jm_err_set(err, JM_ENOENT,
			"There is no device cpu:%d; cpu:0 is all processors together.", index);
	dev = calloc(1, sizeof *dev);
	if (!dev)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for device cpu.");
	dev->threads = threads > 0 ? threads : omp_get_num_procs();
	dev->kernels = cpu_kernels_best();
	dev->fast_bf16 = cpu_bf16_is_fast();
	omp_set_num_threads(dev->threads);
	dnnl_set_primitive_cache_capacity(CACHED_PRIMITIVES);
	s = dnnl_engine_create(&dev->engine, dnnl_cpu, 0);
	if (!s)
		s = dnnl_stream_create(&dev->stream, dev->engine, dnnl_stream_default_flags);
	if (s) {
		cpu_close(dev);
		return jm_err_set(err, JM_ENOSUP,
			"oneDNN cannot be started (its status is %d); use --device ref.", (int)s);
	}
	measure(dev);
	*ret_dev = dev;
	return 0;
}

static void cpu_props(void *arg, struct jm_device_props *ret)
{
	const struct cpu_dev *dev = arg;
	struct sysinfo info;
	char brand[64];

	*ret = (struct jm_device_props){.host_memory = true, .peak_bytes = NAN};
	cpu_brand(brand, sizeof brand);
	snprintf(ret->name, sizeof ret->name, "%s, %d thread%s", brand, dev->threads,
		dev->threads == 1 ? "" : "s");
	if (!sysinfo(&info))
		ret->memory_bytes = (size_t)info.totalram * info.mem_unit;
	for (int i = 0; i < JM_DTYPE_COUNT; i++)
		ret->peak_flops[i] = NAN;
	ret->native[JM_F32] = ret->native[JM_I32] = true;
	ret->native[JM_BF16] = dev->has_bf16;
	ret->peak_flops[JM_F32] = dev->peak_f32;
	ret->peak_flops[JM_BF16] = dev->peak_bf16;
}

/* ---- select: supported ops and types --------------------------------------------- */

static int check_tensor(
	const struct jm_node *node, const struct jm_tensor *t, bool vector, struct jm_err *err)
{
	if (!t)
		return 0;
	if (t->type == JM_F32 || (t->type == JM_BF16 && !vector))
		return 0;
	return jm_err_set(err, JM_ENOSUP,
		"Backend cpu cannot use %s of %s in %s; it supports f32 and bf16: give one of them "
		"with --precision.",
		t->name, jm_op_name(node->op), jm_dtype_name(t->type));
}

/* Operands that may be bf16, as bits; the others are f32. A separate member lists those in i32 or
 * u8. */
static const struct {
	unsigned in, out, ids;
} types[JM_OP_COUNT] = {
	[JM_OP_EMBED] = {NTH(1) | NTH(2), FIRST(1), FIRST(1)},
	[JM_OP_EMBED_GRAD] = {NTH(1), 0, FIRST(1)},
	[JM_OP_LINEAR] = {FIRST(2), FIRST(1), 0},
	[JM_OP_LINEAR_DGRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_LINEAR_WGRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_GELU] = {FIRST(1), FIRST(1), 0},
	[JM_OP_GELU_GRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_LAYERNORM] = {FIRST(1), FIRST(1), 0},
	[JM_OP_LAYERNORM_GRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_ROPE] = {FIRST(1), FIRST(1), NTH(1)},
	[JM_OP_ROPE_GRAD] = {FIRST(1), FIRST(1), NTH(1)},
	[JM_OP_ATTENTION] = {FIRST(3), FIRST(1), NTH(3)},
	[JM_OP_ATTENTION_GRAD] = {FIRST(5), FIRST(3), NTH(6)},
	[JM_OP_ADD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_SOFTMAX_XENT] = {FIRST(1), NTH(1), NTH(1)},
	[JM_OP_TOP1] = {FIRST(1), 0, NTH(1)},
	[JM_OP_MSE] = {FIRST(2), NTH(1), 0},
	[JM_OP_ADD_NOISE] = {FIRST(2), FIRST(1), NTH(2)},
	[JM_OP_DRAW_MOMENTS] = {FIRST(2), FIRST(1), 0},
	[JM_OP_STEP_WAVES] = {0, FIRST(1), NTH(0)},
	[JM_OP_COLOURS] = {0, FIRST(1), NTH(0)},
	[JM_OP_DFT] = {FIRST(1), FIRST(1), 0},
	[JM_OP_IDFT] = {FIRST(1), FIRST(1), 0},
	[JM_OP_MIX_MODES] = {FIRST(2), FIRST(1), 0},
	[JM_OP_MIX_MODES_DGRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_MIX_MODES_WGRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_RELATIVE_L2] = {FIRST(2), NTH(1), 0},
	[JM_OP_CAST] = {FIRST(1), FIRST(1), 0},
	[JM_OP_CONV] = {FIRST(2), FIRST(1), 0},
	[JM_OP_CONV_DGRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_CONV_WGRAD] = {FIRST(2), 0, 0},
	[JM_OP_BN_STATS] = {FIRST(1), 0, 0},
	[JM_OP_BN_APPLY] = {NTH(0) | NTH(5), FIRST(1), 0},
	[JM_OP_BN_GRAD] = {FIRST(3), NTH(0) | NTH(3), 0},
	[JM_OP_RMSNORM] = {FIRST(1), FIRST(1), 0},
	[JM_OP_RMSNORM_GRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_MAXPOOL] = {FIRST(1), FIRST(1), 0},
	[JM_OP_MAXPOOL_GRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_AVGPOOL] = {FIRST(1), FIRST(1), 0},
	[JM_OP_AVGPOOL_GRAD] = {FIRST(1), FIRST(1), 0},
	[JM_OP_GAP] = {FIRST(1), FIRST(1), 0},
	[JM_OP_GAP_GRAD] = {FIRST(1), FIRST(1), 0},
	[JM_OP_UPSAMPLE] = {FIRST(1), FIRST(1), 0},
	[JM_OP_UPSAMPLE_GRAD] = {FIRST(1), FIRST(1), 0},
	[JM_OP_GROUPNORM] = {FIRST(1), FIRST(1), 0},
	[JM_OP_GROUPNORM_GRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_RELU] = {FIRST(1), FIRST(1), 0},
	[JM_OP_RELU_GRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_GELU_ERF] = {FIRST(1), FIRST(1), 0},
	[JM_OP_GELU_ERF_GRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_GELU_QUICK] = {FIRST(1), FIRST(1), 0},
	[JM_OP_GELU_QUICK_GRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_SILU] = {FIRST(1), FIRST(1), 0},
	[JM_OP_SILU_GRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_SWIGLU] = {FIRST(1), FIRST(1), 0},
	[JM_OP_SWIGLU_GRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_GEGLU] = {FIRST(1), FIRST(1), 0},
	[JM_OP_GEGLU_GRAD] = {FIRST(2), FIRST(1), 0},
	[JM_OP_TOKENS] = {FIRST(1), FIRST(1), 0},
	[JM_OP_TOKENS_GRAD] = {FIRST(1), FIRST(1), 0},
	[JM_OP_FIRST] = {FIRST(1), FIRST(1), 0},
	[JM_OP_FIRST_GRAD] = {FIRST(1), FIRST(1), 0},
	[JM_OP_PUT_ROWS] = {FIRST(2), FIRST(1), NTH(2)},
	[JM_OP_PUT_ROWS_GRAD] = {FIRST(1), FIRST(2), NTH(1)},
	[JM_OP_CONCAT] = {FIRST(4), FIRST(1), 0},
	[JM_OP_SPLIT] = {FIRST(1), FIRST(4), 0},
	[JM_OP_DROPOUT] = {FIRST(1), FIRST(1), NTH(1)},
	[JM_OP_CACHE_WRITE] = {NTH(0) | NTH(4) | NTH(5), FIRST(3), NTH(1) | NTH(2) | NTH(3)},
	[JM_OP_ATTENTION_PAGES] = {NTH(0) | NTH(4) | NTH(5), FIRST(1), NTH(1) | NTH(2) | NTH(3)},
	[JM_OP_MADE_IDS] = {0, 0, FIRST(2)},
	[JM_OP_SAMPLE] = {FIRST(1), 0, NTH(2)},
	[JM_OP_ROWS] = {FIRST(1), FIRST(1), NTH(1)},
	[JM_OP_ROWS_GRAD] = {FIRST(1), FIRST(1), NTH(1)},
	[JM_OP_WANTED_ROWS] = {0, 0, FIRST(1)},
	[JM_OP_AVERAGE] = {FIRST(1), 0, 0},
	[JM_OP_QUANTIZE] = {FIRST(1), 0, 0},
	[JM_OP_NORM] = {FIRST(1), 0, 0},
	/* p, m and v, or none of them; the gradient only with them */
	[JM_OP_ADAMW] = {FIRST(1), FIRST(4), 0},
	[JM_OP_ADAM] = {FIRST(1), FIRST(4), 0},
	[JM_OP_SGD] = {FIRST(1), FIRST(2), 0},
};

static bool is_linear(const struct jm_node *n)
{
	return n->op == JM_OP_LINEAR || n->op == JM_OP_LINEAR_DGRAD || n->op == JM_OP_LINEAR_WGRAD;
}

/* Checks the conditions of products in 8 bits and tf32 that are not about types. */
static int check_product(const struct jm_node *node, struct jm_err *err)
{
	int scales = node->op == JM_OP_LINEAR ? 3 : 2;

	if (node->math == JM_MATH_TF32 && node->flops_executed > 0)
		return jm_err_set(err, JM_ENOSUP,
			"Backend cpu has no tf32, which processors do not support; use --precision "
			"f32 or bf16.");
	if (!is_linear(node) || (cpu_is_f8(node->in[0]) && cpu_is_f8(node->in[1])))
		return 0;
	if (node->in[scales] || node->in[scales + 1])
		return jm_err_set(err, JM_ENOSUP,
			"Backend cpu has products of scaled operands in 8 bits only; use "
			"--precision bf16.");
	return 0;
}

/* True for both factors of a product, the result of quantize, both sides of a copy, and keys and
 * values. */
static bool may_be_f8(const struct jm_node *n, int in, int out)
{
	if (n->op == JM_OP_CAST)
		return n->in[0]->type == n->out[0]->type && !n->accumulate;
	if (n->op == JM_OP_QUANTIZE)
		return out == 0;
	if (n->op == JM_OP_CACHE_WRITE || n->op == JM_OP_ATTENTION_PAGES)
		return in == 4 || in == 5 || out == 1 || out == 2;
	return is_linear(n) && (in == 0 || in == 1) && cpu_is_f8(n->in[!in]);
}

/* Rows of i32 are copied, as those of any type. */
static bool takes_ids(const struct jm_node *n)
{
	return n->op == JM_OP_ROWS && n->in[0]->type == JM_I32;
}

/* Its results are i32. */
static bool makes_ids(const struct jm_node *n)
{
	return n->op == JM_OP_SAMPLE || n->op == JM_OP_MADE_IDS || n->op == JM_OP_WANTED_ROWS ||
	       takes_ids(n);
}

static int check_node(const struct jm_node *node, struct jm_err *err)
{
	int ret = check_product(node, err);

	for (int i = 0; !ret && i < node->n_in; i++) {
		if (types[node->op].ids >> i & 1 || takes_ids(node) ||
			(cpu_is_f8(node->in[i]) && may_be_f8(node, i, -1)))
			continue;
		ret = check_tensor(node, node->in[i], !(types[node->op].in >> i & 1), err);
	}
	for (int i = 0; !ret && i < node->n_out; i++)
		if (!makes_ids(node) && (!cpu_is_f8(node->out[i]) || !may_be_f8(node, -1, i)))
			ret = check_tensor(
				node, node->out[i], !(types[node->op].out >> i & 1), err);
	return ret;
}

static int cpu_select(
	void *arg, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	const struct cpu_dev *dev = arg;
	const struct cpu_op *op = cpu_op_find(group->node, group->n_nodes);
	struct jm_node node[CPU_NODES];

	if (!op) {
		jm_err_set(err, JM_ENOSUP, "Backend cpu has no kernel for %s%s%s.",
			jm_op_name(group->node[0]->op), group->n_nodes > 1 ? " + " : "",
			group->n_nodes > 1 ? jm_op_name(group->node[1]->op) : "");
		return 0;
	}
	for (int i = 0; i < op->n_nodes; i++) {
		node[i] = *group->node[i];
		if (check_node(&node[i], err))
			return 0;
	}
	if (op->takes && op->takes(dev, node, err))
		return 0;
	return cpu_choices(dev, group, op, choice, err);
}

/* ---- build and run --------------------------------------------------------------------------- */

static void cpu_drop(void *dev, void *arg)
{
	struct cpu_exec *exec = arg;

	(void)dev;
	if (exec && exec->op->drop)
		exec->op->drop(exec);
	free(exec);
}

static int cpu_build(void *arg, const struct jm_group *group, const struct jm_choice *choice,
	void **ret_exec, struct jm_err *err)
{
	struct cpu_dev *dev = arg;
	struct cpu_exec *exec = calloc(1, sizeof *exec);
	int ret = 0;

	if (!exec)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for a step of the program.");
	exec->op = cpu_op_find(group->node, group->n_nodes);
	if (!exec->op) {
		free(exec);
		return jm_err_set(err, JM_EBUG, "A group that backend cpu had refused was built.");
	}
	for (int i = 0; i < group->n_nodes; i++)
		exec->node[i] = *group->node[i];
	exec->scratch = group->scratch;
	exec->scratch_bytes = choice->scratch;
	exec->tag = choice->tag;
	omp_set_num_threads(dev->threads);
	if (exec->op->build)
		ret = exec->op->build(dev, exec, err);
	if (ret)
		cpu_drop(dev, exec);
	else
		*ret_exec = exec;
	return ret;
}

static int cpu_run(void *arg_dev, void *arg, struct jm_err *err)
{
	const struct cpu_dev *dev = arg_dev;
	const struct cpu_exec *exec = arg;

	/* oneDNN reads this; the caller may be another thread than that of open */
	omp_set_num_threads(dev->threads);
	return exec->op->run(dev, exec, err);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* New pages are zero. Huge pages avoid most misses of the address translation cache (TLB). */
static void *cpu_alloc(void *dev, size_t bytes)
{
	size_t all = bytes + 2 * HUGE_PAGE;
	char *map = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t *head;

	(void)dev;
	if (map == MAP_FAILED)
		return NULL;
	head = (size_t *)((uintptr_t)map / HUGE_PAGE * HUGE_PAGE + 2 * HUGE_PAGE) - 2;
	madvise(head + 2, bytes, MADV_HUGEPAGE);
	head[0] = (size_t)(uintptr_t)map;
	head[1] = all;
	return head + 2;
}

static void cpu_release(void *dev, void *memory)
{
	size_t *head;

	(void)dev;
	if (!memory)
		return;
	head = (size_t *)memory - 2;
	munmap((void *)(uintptr_t)head[0], head[1]);
}

static int cpu_copy(void *dev, enum jm_queue queue, void *to, const void *from, size_t bytes,
	enum jm_copy kind, struct jm_err *err)
{
	(void)dev;
	(void)queue;
	(void)kind;
	(void)err;
	memcpy(to, from, bytes);
	return 0;
}

static int cpu_fill(void *dev, enum jm_queue queue, void *to, unsigned char value, size_t bytes,
	struct jm_err *err)
{
	(void)dev;
	(void)queue;
	(void)err;
	memset(to, value, bytes);
	return 0;
}

static int cpu_sync(void *dev, struct jm_err *err)
{
	(void)dev;
	(void)err;
	return 0;
}

static const struct jm_backend backend = {
	.abi = JM_BACKEND_ABI,
	.name = "cpu",
	.summary = "the processors of this machine (oneDNN and own vector kernels)",
	.open = cpu_open,
	.props = cpu_props,
	.select = cpu_select,
	.build = cpu_build,
	.run = cpu_run,
	.drop = cpu_drop,
	.alloc = cpu_alloc,
	.release = cpu_release,
	.copy = cpu_copy,
	.fill = cpu_fill,
	.sync = cpu_sync,
	.close = cpu_close,
};

const struct jm_backend *jm_backend_entry(void)
{
	return &backend;
}
