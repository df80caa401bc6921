/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a convolution, or of a gradient of one, in oneDNN: the layouts, which oneDNN chooses,
 * scratch, and images per call. select returns the plan as a choice; conv.c builds and runs it.
 */
#include <math.h>

#include "conv_matrix.h"
#include "dnnl_conv.h"
#include "seconds.h"

/* Bytes of images that are widened at a time: for results, and for sums over images, each of which
 * needs a pass over the weights. */
#define PIECE_BYTES	((int64_t)8 << 20)
#define PIECE_SUM_BYTES ((int64_t)64 << 20)

int cpu_conv_fail(struct jm_err *err, const struct jm_node *node, dnnl_status_t status)
{
	return jm_err_set(err, status == dnnl_out_of_memory ? JM_ENOMEM : JM_ENOSUP,
		"oneDNN cannot run this %s (its status %d).", jm_op_name(node->op), (int)status);
}

/* ---- from node to shapes --------------------------------------------------------------------- */

static void set_tensors(struct cpu_conv *c, const struct jm_node *n)
{
	switch (n->op) {
	case JM_OP_CONV:
		c->t[SRC] = n->in[0];
		c->t[WEI] = n->in[1];
		c->bias = n->in[2];
		c->t[DST] = n->out[0];
		c->result = DST;
		break;
	case JM_OP_CONV_DGRAD:
		c->t[DST] = n->in[0];
		c->t[WEI] = n->in[1];
		c->t[SRC] = n->out[0];
		c->result = SRC;
		break;
	default:
		c->t[DST] = n->in[0];
		c->t[SRC] = n->in[1];
		c->t[WEI] = n->out[0];
		c->bias = n->out[1];
		c->result = WEI;
	}
}

/* The smallest divisor of n that is at least i; takes about sqrt(n) steps, because n may be any
 * batch. */
static int64_t divisor_from(int64_t i, int64_t n)
{
	while (i * i <= n && n % i)
		i++;
	if (n % i == 0)
		return i;
	for (i = n / i; n % i;)
		i--;
	return n / i;
}

/* Chooses a divisor of the batch so that the copies of a piece in scratch take about
 * PIECE_BYTES. */
static void set_pieces(struct cpu_conv *c, bool widened, int threads)
{
	int64_t all = c->t[SRC]->dim[0], piece = all;
	int64_t each = 4 * (jm_tensor_count(c->t[SRC]) + jm_tensor_count(c->t[DST])) / all;
	int64_t least = threads < all ? threads : all;
	int64_t bound = c->result == WEI ? PIECE_SUM_BYTES : PIECE_BYTES;
	bool apart = widened || cpu_conv_adds(c);

	if (apart && all * each > bound)
		piece = bound / each > least ? bound / each : least;
	while (piece > least && all % piece)
		piece--;
	c->piece = divisor_from(piece, all);
	c->pieces = all / c->piece;
}

static void describe(const struct cpu_dev *dev, const struct jm_node *n, struct cpu_conv *c)
{
	bool bf16;

	*c = (struct cpu_conv){.groups = n->attr.conv.groups};
	set_tensors(c, n);
	bf16 = c->t[SRC]->type == JM_BF16;
	c->type = bf16 && dev->fast_bf16 ? dnnl_bf16 : dnnl_f32;
	c->accumulate = jm_node_adds(n, 0);
	for (int i = 0; i < 2; i++) {
		c->stride[i] = n->attr.conv.stride[i];
		c->pad[i] = n->attr.conv.pad[i];
		c->pad_end[i] = c->pad[i] + n->attr.conv.more[i];
		c->dilation[i] = n->attr.conv.dilation[i] - 1;
	}
	/* the gradient of a bias is not summed over pieces */
	set_pieces(c, bf16 && !dev->fast_bf16 && !(c->bias && c->result == WEI), dev->threads);
}

static dnnl_data_type_t type_of(const struct jm_tensor *t)
{
	return t->type == JM_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* One piece of an image, or all of the weights; grouped weights are plain [g, K/g, C/g, R, S]. */
static void piece_desc(const struct cpu_conv *c, enum role role, const struct jm_layout *layout,
	dnnl_data_type_t type, dnnl_memory_desc_t *ret)
{
	struct jm_tensor t = *c->t[role];

	if (role != WEI) {
		t.dim[0] = c->piece;
	} else if (c->groups > 1) {
		memmove(t.dim + 2, t.dim + 1, 3 * sizeof(*t.dim));
		t.dim[1] = t.dim[0] / c->groups;
		t.dim[0] = c->groups;
		t.rank = 5;
	}
	cpu_layout_desc(&t, layout, type, ret);
}

/* The same; without a layout oneDNN may choose any. */
static void wanted_desc(const struct cpu_conv *c, enum role role, const struct jm_layout *layout,
	dnnl_memory_desc_t *ret)
{
	bool sum = (role == WEI && c->result == WEI) || (role == SRC && cpu_conv_adds(c));
	dnnl_data_type_t type = sum ? dnnl_f32 : c->type; /* a sum is rounded once */

	piece_desc(c, role, layout ? layout : &(struct jm_layout){0}, type, ret);
	if (!layout)
		dnnl_memory_desc_init_by_tag(ret, ret->ndims, ret->dims, type, dnnl_format_tag_any);
}

/* ---- the primitive descriptor ---------------------------------------------------------------- */

static dnnl_status_t forward_desc(const struct cpu_conv *c, const dnnl_memory_desc_t *md,
	const dnnl_memory_desc_t *bias, dnnl_convolution_desc_t *ret)
{
	return dnnl_dilated_convolution_forward_desc_init(ret, dnnl_forward_training,
		dnnl_convolution_direct, &md[SRC], &md[WEI], bias, &md[DST], c->stride, c->dilation,
		c->pad, c->pad_end);
}

/* The forward pass of the same shape, which oneDNN needs to describe a gradient. */
static dnnl_status_t create_hint(const struct cpu_dev *dev, const struct cpu_conv *c,
	const dnnl_memory_desc_t *md, dnnl_primitive_desc_t *ret)
{
	dnnl_memory_desc_t same[ROLES];
	dnnl_convolution_desc_t desc;
	dnnl_status_t s;

	memcpy(same, md, sizeof(same));
	same[WEI].data_type = same[SRC].data_type = c->type;
	s = forward_desc(c, same, NULL, &desc);
	return s ? s : dnnl_primitive_desc_create(ret, &desc, NULL, dev->engine, NULL);
}

static dnnl_status_t op_desc(const struct cpu_conv *c, const dnnl_memory_desc_t *md,
	const dnnl_memory_desc_t *bias, dnnl_convolution_desc_t *ret)
{
	if (c->result == DST)
		return forward_desc(c, md, bias, ret);
	if (c->result == SRC)
		return dnnl_dilated_convolution_backward_data_desc_init(ret,
			dnnl_convolution_direct, &md[SRC], &md[WEI], &md[DST], c->stride,
			c->dilation, c->pad, c->pad_end);
	return dnnl_dilated_convolution_backward_weights_desc_init(ret, dnnl_convolution_direct,
		&md[SRC], &md[WEI], bias, &md[DST], c->stride, c->dilation, c->pad, c->pad_end);
}

static dnnl_status_t create_pd(const struct cpu_dev *dev, struct cpu_conv *c,
	const dnnl_memory_desc_t *md, const dnnl_memory_desc_t *bias)
{
	dnnl_primitive_desc_t hint = NULL;
	dnnl_primitive_attr_t attr = NULL;
	dnnl_convolution_desc_t desc;
	dnnl_status_t s = op_desc(c, md, bias, &desc);

	if (!s && c->result != DST)
		s = create_hint(dev, c, md, &hint);
	if (!s)
		s = dnnl_primitive_attr_create(&attr);
	if (!s)
		s = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
	if (!s)
		s = dnnl_primitive_desc_create(&c->pd, &desc, attr, dev->engine, hint);
	dnnl_primitive_attr_destroy(attr);
	dnnl_primitive_desc_destroy(hint);
	return s;
}

static const dnnl_memory_desc_t *inner_desc(const struct cpu_conv *c, enum role role)
{
	static const dnnl_query_t value[ROLES] = {
		dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md};
	static const dnnl_query_t gradient[ROLES] = {
		dnnl_query_diff_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md};
	dnnl_query_t which = cpu_conv_is_gradient(c, role) ? gradient[role] : value[role];

	return dnnl_primitive_desc_query_md(c->pd, which, 0);
}

static size_t aligned(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

/* Places oneDNN's scratch memory, then operands in another layout than the engine's. */
static void place(struct cpu_conv *c)
{
	const dnnl_memory_desc_t *md =
		dnnl_primitive_desc_query_md(c->pd, dnnl_query_scratchpad_md, 0);

	c->scratchpad = md ? dnnl_memory_desc_get_size(md) : 0;
	c->bytes = aligned(c->scratchpad);
	for (int r = 0; r < ROLES; r++) {
		c->inner[r] = *inner_desc(c, r);
		c->apart[r] = !dnnl_memory_desc_equal(&c->inner[r], &c->outer[r]) ||
			      (r == WEI && cpu_conv_sums(c)) || (r == SRC && cpu_conv_adds(c));
		if (!c->apart[r])
			continue;
		c->offset[r] = c->bytes;
		c->bytes += aligned(dnnl_memory_desc_get_size(&c->inner[r]));
	}
}

/* Completes the plan that describe began. layout: by role, each NULL = any. Weights that are a
 * result, and grouped ones, are reordered from or to oneDNN's preferred layout if theirs
 * differs. */
static dnnl_status_t plan(
	const struct cpu_dev *dev, const struct jm_layout *const *layout, struct cpu_conv *c)
{
	bool any = c->result == WEI || c->groups > 1;
	dnnl_memory_desc_t md[ROLES], bias;
	dnnl_status_t s;

	for (int r = 0; r < ROLES; r++) {
		wanted_desc(c, r, r == WEI && any ? NULL : layout[r], &md[r]);
		piece_desc(c, r, layout[r] ? layout[r] : &(struct jm_layout){0}, type_of(c->t[r]),
			&c->outer[r]);
	}
	if (c->bias)
		cpu_layout_desc(c->bias, &(struct jm_layout){0}, dnnl_f32, &bias);
	s = create_pd(dev, c, md, c->bias ? &bias : NULL);
	if (!s)
		place(c);
	return s;
}

dnnl_status_t cpu_conv_plan(const struct cpu_dev *dev, const struct jm_node *node,
	const struct jm_layout *layout, struct cpu_conv *ret)
{
	const struct jm_layout *fixed[ROLES] = {0};

	describe(dev, node, ret);
	for (int r = 0; r < ROLES; r++)
		fixed[r] = layout ? &layout[r] : &ret->t[r]->layout;
	return plan(dev, fixed, ret);
}

/* ---- select ---------------------------------------------------------------------------------- */

static void set_choice(const struct jm_node *n, const struct jm_layout *l, struct jm_choice *ret)
{
	bool forward = n->op == JM_OP_CONV, weights = n->op == JM_OP_CONV_WGRAD;

	ret->in[0][0] = l[forward ? SRC : DST];
	ret->in[0][1] = l[weights ? SRC : WEI];
	ret->out[0][0] = l[forward ? DST : weights ? WEI : SRC];
}

/* The layouts that oneDNN prefers; plain where struct jm_layout cannot describe them, as of grouped
 * weights. */
static dnnl_status_t ask(const struct cpu_dev *dev, const struct jm_node *n, struct jm_layout *ret)
{
	const struct jm_layout *any[ROLES] = {0};
	struct cpu_conv c;
	dnnl_status_t s;

	describe(dev, n, &c);
	s = plan(dev, any, &c);
	if (s)
		return s;
	for (int r = 0; r < ROLES; r++)
		if ((r == WEI && c.groups > 1) || !cpu_layout_of(&c.inner[r], &ret[r]))
			ret[r] = (struct jm_layout){0};
	dnnl_primitive_desc_destroy(c.pd);
	return s;
}

static bool one_type(const struct jm_node *n)
{
	const struct jm_tensor *other = n->op == JM_OP_CONV ? n->out[0] : n->in[1];

	return n->in[0]->type == other->type &&
	       (n->op != JM_OP_CONV || n->in[1]->type == other->type) &&
	       (n->op != JM_OP_CONV_DGRAD || n->out[0]->type == other->type);
}

/* Refuses sums that neither oneDNN nor this backend can make. */
static int refuse_sum(const struct jm_node *n, struct jm_err *err)
{
	if (n->op == JM_OP_CONV && n->accumulate)
		return jm_err_set(err, JM_ENOSUP, "%s of backend cpu cannot add to its output.",
			jm_op_name(n->op));
	if (n->op == JM_OP_CONV_WGRAD && n->accumulate && n->out[1])
		return jm_err_set(err, JM_ENOSUP,
			"conv-wgrad of backend cpu cannot add to the gradient of a bias.");
	return 0;
}

/* True if oneDNN would run its reference loops, which are not optimised. */
static bool is_slow(const struct cpu_conv *c)
{
	const char *name = NULL;

	return !dnnl_primitive_desc_query(c->pd, dnnl_query_impl_info_str, 0, &name) && name &&
	       !strncmp(name, "ref", 3);
}

/* True if adding needs no other layout and no slower implementation than the convolution alone. */
static bool sum_is_cheap(
	const struct cpu_conv *c, const struct jm_layout *layout, const struct jm_node *node)
{
	return !is_slow(c) && jm_layout_equal(&layout[SRC], &node->out[0]->layout);
}

static double seconds_of(
	const struct cpu_dev *dev, const struct jm_node *node, const struct cpu_conv *c)
{
	if (c->result != WEI)
		return cpu_seconds(dev, node, CPU_CONV);
	return cpu_seconds(dev, node, CPU_CONV_WGRAD) +
	       (c->apart[WEI] ? cpu_copy_seconds(dev, c->t[WEI]) : 0);
}

/* oneDNN with operands in these layouts; false = not possible, with the reason in err. */
static bool offer_layouts(const struct cpu_dev *dev, const struct jm_node *node,
	const struct jm_layout *layout, struct jm_choice *choice, struct jm_err *err)
{
	struct cpu_conv c;
	dnnl_status_t s = cpu_conv_plan(dev, node, layout, &c);
	bool cheap;

	if (s) {
		cpu_conv_fail(err, node, s);
		return false;
	}
	cheap = !cpu_conv_adds(&c) || sum_is_cheap(&c, layout, node);
	dnnl_primitive_desc_destroy(c.pd);
	if (!cheap) {
		jm_err_set(err, JM_ENOSUP, "The tensor that %s adds to has another layout.",
			jm_op_name(node->op));
		return false;
	}
	set_choice(node, layout, choice);
	choice->scratch = c.bytes;
	choice->seconds = seconds_of(dev, node, &c);
	choice->flops_executed = NAN;
	return true;
}

/* The layouts that oneDNN prefers, and the same with a plain gradient of weights; returns how many:
 * 0 = none, with the reason in err. */
static int offer_onednn(const struct cpu_dev *dev, const struct jm_node *node,
	struct jm_choice *choice, struct jm_err *err)
{
	struct jm_layout layout[ROLES] = {0};
	dnnl_status_t s;
	int n;

	if (refuse_sum(node, err))
		return 0;
	s = ask(dev, node, layout);
	if (s) {
		cpu_conv_fail(err, node, s);
		return 0;
	}
	n = offer_layouts(dev, node, layout, choice, err);
	if (n && node->op == JM_OP_CONV_WGRAD && layout[WEI].rank) {
		layout[WEI] = (struct jm_layout){0};
		n += offer_layouts(dev, node, layout, &choice[n], err);
	}
	return n;
}

int cpu_conv_offer(const struct cpu_dev *dev, const struct jm_node *node, struct jm_choice *choice,
	struct jm_err *err)
{
	int n;

	if (!one_type(node)) {
		jm_err_set(err, JM_ENOSUP,
			"%s of backend cpu needs images and weights of the same type.",
			jm_op_name(node->op));
		return 0;
	}
	n = cpu_conv_matrix_offer(dev, node, choice);
	return n + offer_onednn(dev, node, &choice[n], err);
}
