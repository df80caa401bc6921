/* SPDX-License-Identifier: Apache-2.0 */
/* The reference backend: implements the contract of a backend and calls the kernels with widened
 * operands. */
#include "ref_kernels.h"
#include "engine/device/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* direct: the kernel reads and writes the tensors without widened copies. */
static const struct {
	jm_ref_kernel *run;
	bool direct;
} kernels[JM_OP_COUNT] = {
	[JM_OP_EMBED] = {jm_ref_embed, false},
	[JM_OP_EMBED_GRAD] = {jm_ref_embed_grad, false},
	[JM_OP_LINEAR] = {jm_ref_linear, false},
	[JM_OP_LINEAR_DGRAD] = {jm_ref_linear_dgrad, false},
	[JM_OP_LINEAR_WGRAD] = {jm_ref_linear_wgrad, false},
	[JM_OP_GELU] = {jm_ref_gelu, true},
	[JM_OP_GELU_GRAD] = {jm_ref_gelu_grad, true},
	[JM_OP_LAYERNORM] = {jm_ref_layernorm, false},
	[JM_OP_LAYERNORM_GRAD] = {jm_ref_layernorm_grad, false},
	[JM_OP_ROPE] = {jm_ref_rope, false},
	[JM_OP_ROPE_GRAD] = {jm_ref_rope_grad, false},
	[JM_OP_ATTENTION] = {jm_ref_attention, false},
	[JM_OP_ATTENTION_GRAD] = {jm_ref_attention_grad, false},
	[JM_OP_ADD] = {jm_ref_add, true},
	[JM_OP_SOFTMAX_XENT] = {jm_ref_softmax_xent, false},
	[JM_OP_CAST] = {jm_ref_cast, true},
	[JM_OP_NORM] = {jm_ref_norm, true},
	[JM_OP_ADAMW] = {jm_ref_adamw, true},
	[JM_OP_CONV] = {jm_ref_conv, false},
	[JM_OP_CONV_DGRAD] = {jm_ref_conv_dgrad, false},
	[JM_OP_CONV_WGRAD] = {jm_ref_conv_wgrad, false},
	[JM_OP_BN_STATS] = {jm_ref_bn_stats, false},
	[JM_OP_BN_FINALIZE] = {jm_ref_bn_finalize, true},
	[JM_OP_BN_APPLY] = {jm_ref_bn_apply, false},
	[JM_OP_BN_GRAD] = {jm_ref_bn_grad, false},
	[JM_OP_RMSNORM] = {jm_ref_rmsnorm, false},
	[JM_OP_RMSNORM_GRAD] = {jm_ref_rmsnorm_grad, false},
	[JM_OP_MAXPOOL] = {jm_ref_maxpool, false},
	[JM_OP_MAXPOOL_GRAD] = {jm_ref_maxpool_grad, false},
	[JM_OP_AVGPOOL] = {jm_ref_avgpool, false},
	[JM_OP_AVGPOOL_GRAD] = {jm_ref_avgpool_grad, false},
	[JM_OP_GAP] = {jm_ref_gap, false},
	[JM_OP_GAP_GRAD] = {jm_ref_gap_grad, false},
	[JM_OP_UPSAMPLE] = {jm_ref_upsample, false},
	[JM_OP_UPSAMPLE_GRAD] = {jm_ref_upsample_grad, false},
	[JM_OP_GROUPNORM] = {jm_ref_groupnorm, false},
	[JM_OP_GROUPNORM_GRAD] = {jm_ref_groupnorm_grad, false},
	[JM_OP_RELU] = {jm_ref_relu, true},
	[JM_OP_RELU_GRAD] = {jm_ref_relu_grad, true},
	[JM_OP_GELU_ERF] = {jm_ref_gelu_erf, true},
	[JM_OP_GELU_ERF_GRAD] = {jm_ref_gelu_erf_grad, true},
	[JM_OP_GELU_QUICK] = {jm_ref_gelu_quick, true},
	[JM_OP_GELU_QUICK_GRAD] = {jm_ref_gelu_quick_grad, true},
	[JM_OP_SILU] = {jm_ref_silu, true},
	[JM_OP_SILU_GRAD] = {jm_ref_silu_grad, true},
	[JM_OP_SWIGLU] = {jm_ref_swiglu, false},
	[JM_OP_SWIGLU_GRAD] = {jm_ref_swiglu_grad, false},
	[JM_OP_GEGLU] = {jm_ref_geglu, false},
	[JM_OP_GEGLU_GRAD] = {jm_ref_geglu_grad, false},
	[JM_OP_TOKENS] = {jm_ref_tokens, false},
	[JM_OP_TOKENS_GRAD] = {jm_ref_tokens_grad, false},
	[JM_OP_FIRST] = {jm_ref_first, false},
	[JM_OP_FIRST_GRAD] = {jm_ref_first_grad, false},
	[JM_OP_PUT_ROWS] = {jm_ref_put_rows, false},
	[JM_OP_PUT_ROWS_GRAD] = {jm_ref_put_rows_grad, false},
	[JM_OP_CONCAT] = {jm_ref_concat, false},
	[JM_OP_SPLIT] = {jm_ref_split, false},
	[JM_OP_DROPOUT] = {jm_ref_dropout, true},
	[JM_OP_ADAM] = {jm_ref_adam, true},
	[JM_OP_SGD] = {jm_ref_sgd, true},
	[JM_OP_TOP1] = {jm_ref_top1, false},
	[JM_OP_MSE] = {jm_ref_mse, false},
	[JM_OP_ADD_NOISE] = {jm_ref_add_noise, false},
	[JM_OP_DRAW_MOMENTS] = {jm_ref_draw_moments, false},
	[JM_OP_STEP_WAVES] = {jm_ref_step_waves, false},
	[JM_OP_COLOURS] = {jm_ref_colours, false},
	[JM_OP_DFT] = {jm_ref_dft, false},
	[JM_OP_IDFT] = {jm_ref_idft, false},
	[JM_OP_MIX_MODES] = {jm_ref_mix_modes, false},
	[JM_OP_MIX_MODES_DGRAD] = {jm_ref_mix_modes_dgrad, false},
	[JM_OP_MIX_MODES_WGRAD] = {jm_ref_mix_modes_wgrad, false},
	[JM_OP_RELATIVE_L2] = {jm_ref_relative_l2, false},
	[JM_OP_CACHE_WRITE] = {jm_ref_cache_write, true},
	[JM_OP_ATTENTION_PAGES] = {jm_ref_attention_pages, true},
	[JM_OP_ROWS] = {jm_ref_rows, true},
	[JM_OP_ROWS_GRAD] = {jm_ref_rows_grad, false},
	[JM_OP_WANTED_ROWS] = {jm_ref_wanted_rows, false},
	[JM_OP_MADE_IDS] = {jm_ref_made_ids, true},
	[JM_OP_SAMPLE] = {jm_ref_sample, true},
	[JM_OP_AVERAGE] = {jm_ref_average, true},
	[JM_OP_QUANTIZE] = {jm_ref_quantize, true},
	[JM_OP_RESCALE] = {jm_ref_rescale, true},
};

struct device {
	size_t memory_bytes;
};

static int ref_open(int index, int threads, void **ret_dev, struct jm_err *err)
{
	struct device *d;

	(void)threads; /* ref always uses one thread */
	if (index)
		return jm_err_set(
			err, JM_ERANGE, "There is no device ref:%d; ref is one device.", index);
	d = calloc(1, sizeof(*d));
	if (!d)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for device ref.");
	d->memory_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
	*ret_dev = d;
	return 0;
}

static void ref_props(void *dev, struct jm_device_props *ret)
{
	const struct device *d = dev;

	*ret = (struct jm_device_props){
		.memory_bytes = d->memory_bytes, .host_memory = true, .peak_bytes = NAN};
	snprintf(ret->name, sizeof(ret->name), "reference loops, 1 thread");
	for (int i = 0; i < JM_DTYPE_COUNT; i++) {
		ret->native[i] = i == JM_F32 || i == JM_F64 || i == JM_I32;
		ret->peak_flops[i] = NAN;
	}
}

/* The elements of all operands, for the widened copies. */
static size_t elements(const struct jm_node *n)
{
	int64_t count = 0;

	for (int i = 0; i < n->n_in; i++)
		count += n->in[i] ? jm_tensor_count(n->in[i]) : 0;
	for (int i = 0; i < n->n_out; i++)
		count += n->out[i] ? jm_tensor_count(n->out[i]) : 0;
	return (size_t)count;
}

static int ref_select(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	const struct jm_node *n = group->node[0];

	(void)dev;
	if (group->n_nodes > 1) {
		jm_err_set(err, JM_ENOSUP, "ref runs one node at a time.");
		return 0;
	}
	if (n->op == JM_OP_CAST) {
		choice->in[0][0] = n->in[0]->layout;
		choice->out[0][0] = n->out[0]->layout;
	}
	choice->scratch = kernels[n->op].direct ? 0 : elements(n) * sizeof(double);
	choice->seconds = NAN;
	choice->flops_executed = NAN;
	return 1;
}

/* run needs only the group, which outlives the exec. */
static int ref_build(void *dev, const struct jm_group *group, const struct jm_choice *choice,
	void **ret_exec, struct jm_err *err)
{
	(void)dev;
	(void)choice;
	(void)err;
	*ret_exec = (void *)(uintptr_t)group;
	return 0;
}

/* True if operand i is a factor of a product in tf32. */
static bool in_tf32(const struct jm_node *n, int i)
{
	if (n->math != JM_MATH_TF32 || i > 1 || n->in[i]->type != JM_F32)
		return false;
	return n->op == JM_OP_LINEAR || n->op == JM_OP_LINEAR_DGRAD ||
	       n->op == JM_OP_LINEAR_WGRAD || n->op == JM_OP_CONV || n->op == JM_OP_CONV_DGRAD ||
	       n->op == JM_OP_CONV_WGRAD;
}

static double *widen(const struct jm_tensor *t, bool tf32, double **room)
{
	double *wide = *room;
	int64_t count = jm_tensor_count(t);

	jm_elements_widen(t->type, t->data, count, wide);
	for (int64_t i = 0; tf32 && i < count; i++)
		wide[i] = (double)jm_tf32_round((float)wide[i]);
	*room += count;
	return wide;
}

static double *zeros(const struct jm_tensor *t, double **room)
{
	double *wide = *room;

	memset(wide, 0, (size_t)jm_tensor_count(t) * sizeof(*wide));
	*room += jm_tensor_count(t);
	return wide;
}

static void narrow(const struct jm_tensor *t, const double *wide, bool add)
{
	int64_t count = jm_tensor_count(t);

	if (!add)
		jm_elements_narrow(t->type, t->data, count, wide);
	for (int64_t i = 0; add && i < count; i++)
		jm_element_set(t->type, t->data, i, wide[i] + jm_element_get(t->type, t->data, i));
}

/* The first operand that is the same tensor; views of a tensor share one copy. */
static int first_of(struct jm_tensor *const *t, int i)
{
	int j = 0;

	while (t[j] != t[i])
		j++;
	return j;
}

static int ref_run(void *dev, void *exec, struct jm_err *err)
{
	const struct jm_group *group = exec;
	const struct jm_node *n = group->node[0];
	double *in[JM_NODE_IN] = {0}, *out[JM_NODE_OUT] = {0}, *room = group->scratch;

	(void)dev;
	(void)err;
	if (kernels[n->op].direct) {
		kernels[n->op].run(n, in, out);
		return 0;
	}
	for (int i = 0; i < n->n_in; i++) {
		int same = first_of(n->in, i);

		if (n->in[i])
			in[i] = same < i ? in[same] : widen(n->in[i], in_tf32(n, i), &room);
	}
	for (int i = 0; i < n->n_out; i++) {
		int same = first_of(n->out, i);

		if (n->out[i])
			out[i] = same < i ? out[same] : zeros(n->out[i], &room);
	}
	kernels[n->op].run(n, in, out);
	for (int i = 0; i < n->n_out; i++)
		if (n->out[i] && first_of(n->out, i) == i)
			narrow(n->out[i], out[i], jm_node_adds(n, i));
	return 0;
}

static void ref_drop(void *dev, void *exec)
{
	(void)dev;
	(void)exec;
}

static void *ref_alloc(void *dev, size_t bytes)
{
	size_t size = (bytes + 63) / 64 * 64;
	void *memory = aligned_alloc(64, size ? size : 64);

	(void)dev;
	return memory ? memset(memory, 0, size) : NULL;
}

static void ref_release(void *dev, void *memory)
{
	(void)dev;
	free(memory);
}

static int ref_copy(void *dev, enum jm_queue queue, void *to, const void *from, size_t bytes,
	enum jm_copy kind, struct jm_err *err)
{
	(void)dev;
	(void)queue;
	(void)kind;
	(void)err;
	memmove(to, from, bytes);
	return 0;
}

static int ref_fill(void *dev, enum jm_queue queue, void *to, unsigned char value, size_t bytes,
	struct jm_err *err)
{
	(void)dev;
	(void)queue;
	(void)err;
	memset(to, value, bytes);
	return 0;
}

static int ref_sync(void *dev, struct jm_err *err)
{
	(void)dev;
	(void)err;
	return 0;
}

extern const struct jm_backend jm_backend_ref;
const struct jm_backend jm_backend_ref = {
	.abi = JM_BACKEND_ABI,
	.name = "ref",
	.summary = "plain loops: the definition of every op",
	.open = ref_open,
	.props = ref_props,
	.select = ref_select,
	.build = ref_build,
	.run = ref_run,
	.drop = ref_drop,
	.alloc = ref_alloc,
	.release = ref_release,
	.copy = ref_copy,
	.fill = ref_fill,
	.sync = ref_sync,
	.close = free,
};
