/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of ResNet-50 that a backend receives: convolutions with the sums of their norms, norms
 * that are added, gradients of norms; and those of a U-Net: images that grow, gradients of
 * biases. */
#include "kit/engine_kit.h"
#include "kit/test.h"

extern const struct jm_backend jm_backend_ref;

/* The one group of several nodes that the backend below takes. */
static struct cover {
	int n;
	enum jm_op op[4];
	int result; /* of the first node */
} wanted;
static bool saves_positions; /* of the maxima, as devices with their own memory do */

static bool is_wanted(const struct jm_group *group)
{
	if (group->n_nodes != wanted.n)
		return false;
	for (int k = 0; k < wanted.n; k++)
		if (group->node[k]->op != wanted.op[k])
			return false;
	return true;
}

static int select_wanted(
	void *dev, const struct jm_group *group, struct jm_choice *choice, struct jm_err *err)
{
	if (group->n_nodes == 1)
		return jm_backend_ref.select(dev, group, choice, err);
	if (!is_wanted(group))
		return 0;
	choice->seconds = choice->flops_executed = NAN;
	return 1;
}

static const struct jm_training half = {.batch = 2, .precision = JM_F16};

/* How many groups are as wanted; ret_inside: of how many of them that result stays inside. */
static int count_of(const char *const *words, const struct jm_training *t,
	const struct cover *cover, int *ret_inside)
{
	struct jm_backend backend = jm_backend_ref;
	struct jm_err err = JM_ERR_INIT;
	struct jm_device device;
	struct jm_program *p;
	int n = 0;

	wanted = *cover;
	*ret_inside = 0;
	assert_ok(jm_device_open("ref", 1, &device, &err), err);
	backend.select = select_wanted;
	device.backend = &backend;
	device.props.host_memory = !saves_positions;
	p = kit_plan(words, t, &device);
	for (int i = 0; i < p->n_units; i++)
		if (is_wanted(&p->unit[i]->group)) {
			n++;
			*ret_inside += p->unit[i]->group.node[0]->out[cover->result]->is_virtual;
		}
	kit_plan_free(p);
	device.backend = &jm_backend_ref;
	jm_device_close(&device);
	return n;
}

static int count(const struct cover *cover, int *ret_inside)
{
	static const char *const words[] = {"resnet50", "image=32", "classes=10", NULL};

	return count_of(words, &half, cover, ret_inside);
}

static void every_convolution_meets_the_sums_of_its_norm(void **unused)
{
	const struct cover cover = {3, {JM_OP_CONV, JM_OP_BN_STATS, JM_OP_BN_FINALIZE}, 0};
	int inside;

	(void)unused;
	assert_int_equal(count(&cover, &inside), 53);
	assert_int_equal(inside, 0); /* the norm and the gradients read it */
}

/* Those of the four blocks that change the width: neither the norm of the shortcut nor its gradient
 * is stored. */
static void norms_that_are_added_meet(void **unused)
{
	const struct cover norms = {2, {JM_OP_BN_APPLY, JM_OP_BN_APPLY}, 0};
	const struct cover gradients = {2, {JM_OP_BN_GRAD, JM_OP_BN_GRAD}, 3};
	const struct cover sums = {2, {JM_OP_BN_STATS, JM_OP_BN_FINALIZE}, 1};
	int inside;

	(void)unused;
	assert_int_equal(count(&norms, &inside), 4);
	assert_int_equal(inside, 4);
	assert_int_equal(count(&gradients, &inside), 4);
	assert_int_equal(inside, 4);
	assert_int_equal(count(&sums, &inside), 53);
	assert_int_equal(inside, 53); /* the variance */
}

/* Of 53 norms these are in no such group: the first, which is pooled; that of the last
 * block; the four of shortcuts, and the four that they are added to. */
static void a_pair_of_norms_is_not_split(void **unused)
{
	const struct cover cover = {2, {JM_OP_CONV_DGRAD, JM_OP_BN_GRAD}, 0};
	int inside;

	(void)unused;
	assert_int_equal(count(&cover, &inside), 53 - 1 - 1 - 4 - 4);
}

static void the_first_norm_meets_its_pooling_in_the_gradient(void **unused)
{
	const struct cover cover = {2, {JM_OP_MAXPOOL_GRAD, JM_OP_BN_GRAD}, 0};
	int inside;

	(void)unused;
	assert_int_equal(count(&cover, &inside), 1);
	assert_int_equal(inside, 1);
}

/* A VGG pools five times. Without that group all 14 convolutions, of which one is of whole images,
 * have the second one. */
static void relus_of_convolutions_meet_their_pooling_in_the_gradient(void **unused)
{
	static const char *const words[] = {"vgg16", "hidden=2", "ffn=8", "classes=10", NULL};
	const struct cover pooled = {3, {JM_OP_MAXPOOL_GRAD, JM_OP_RELU_GRAD, JM_OP_CONV_WGRAD}, 0};
	const struct cover alone = {2, {JM_OP_RELU_GRAD, JM_OP_CONV_WGRAD}, 0};
	int inside;

	(void)unused;
	assert_int_equal(count_of(words, &half, &pooled, &inside), 5);
	assert_int_equal(inside, 5);
	assert_int_equal(count_of(words, &half, &alone, &inside), 14);
	assert_int_equal(inside, 1); /* that of the image needs no gradient */
}

/* Those at the beginnings of an Xception's blocks but the first. */
static void relus_before_filters_of_each_channel_meet_in_the_gradient(void **unused)
{
	static const char *const words[] = {"xception", "hidden=4", "image=32", "classes=10", NULL};
	const struct cover cover = {2, {JM_OP_CONV_DGRAD, JM_OP_RELU_GRAD}, 0};
	int inside;

	(void)unused;
	assert_int_equal(count_of(words, &half, &cover, &inside), 11);
	assert_int_equal(inside, 11);
}

/* Where something was added between norm and ReLU, the gradient reads the result; otherwise it
 * reads x, and the result is not kept for it. */
static void gradients_of_norms_read_what_they_need(void **unused)
{
	static const char *const words[] = {"resnet50", "image=32", "classes=10", NULL};
	struct jm_err err = JM_ERR_INIT;
	struct jm_device device;
	struct jm_program *p;
	int by_result = 0, by_x = 0, neither = 0;

	(void)unused;
	assert_ok(jm_device_open("ref", 1, &device, &err), err);
	p = kit_plan(words, &(struct jm_training){.batch = 2, .precision = JM_F16}, &device);
	for (int i = 0; i < p->graph->n_nodes; i++) {
		const struct jm_node *n = p->graph->node[i];

		if (n->op != JM_OP_BN_GRAD)
			continue;
		by_result += n->in[2] && !n->in[6];
		by_x += !n->in[2] && n->in[6];
		neither += !n->in[2] && !n->in[6];
	}
	assert_int_equal(by_result, 16);
	assert_int_equal(by_x, 2 * 16 + 1);
	assert_int_equal(neither, 4); /* of shortcuts, without ReLU */
	kit_plan_free(p);
	jm_device_close(&device);
}

/*
 * As little time as possible may be spent on recomputation, but an image that grows costs none.
 * Three convolutions and the gradients of their filters read such images, none of which is stored;
 * nor are their gradients, and what grows from one pixel in 22 blocks. Each of the 16 blocks of
 * attention has a gated layer.
 */
static void images_that_grow_are_not_stored(void **unused)
{
	static const char *const words[] = {"unet", "hidden=16", "latent=16", "head-width=8",
		"norm-groups=4", "caption=5", "caption-width=8", NULL};
	const struct jm_training t = {.batch = 2,
		.precision = JM_F16,
		.remake = {.flops = 1e9, .bytes = 1e9, .share = 1e-12, .beside = true}};
	static const struct {
		struct cover cover;
		int n, inside;
	} wants[] = {{{2, {JM_OP_UPSAMPLE, JM_OP_CONV}, 0}, 3, 3},
		{{2, {JM_OP_UPSAMPLE, JM_OP_CONV_WGRAD}, 0}, 3, 3},
		{{2, {JM_OP_CONV_DGRAD, JM_OP_UPSAMPLE_GRAD}, 0}, 3, 3},
		{{2, {JM_OP_UPSAMPLE, JM_OP_ADD}, 0}, 22, 22},
		{{3, {JM_OP_GEGLU_GRAD, JM_OP_GEGLU, JM_OP_LINEAR_WGRAD}, 0}, 16, 0}};

	(void)unused;
	for (size_t i = 0; i < sizeof(wants) / sizeof(*wants); i++) {
		int inside;

		assert_int_equal(count_of(words, &t, &wants[i].cover, &inside), wants[i].n);
		assert_int_equal(inside, wants[i].inside);
	}
}

/*
 * Of 61 group norms 22 read the sum of a block's first convolution and its wave, 23 another sum,
 * and 12 an image with that of a skip beside it; the gradients of these 12 are divided. All but
 * what grows is stored, as gradients read it or add to it. Each of 22 blocks ends with a sum, for
 * which the result of its last convolution is not stored.
 */
static void group_norms_meet_what_makes_their_image(void **unused)
{
	static const char *const words[] = {"unet", "hidden=16", "latent=16", "head-width=8",
		"norm-groups=4", "caption=5", "caption-width=8", NULL};
	static const struct {
		struct cover cover;
		int n, inside;
	} wants[] = {{{3, {JM_OP_UPSAMPLE, JM_OP_ADD, JM_OP_GROUPNORM}, 0}, 22, 22},
		{{2, {JM_OP_ADD, JM_OP_GROUPNORM}, 0}, 22 + 23, 0},
		{{2, {JM_OP_CONV, JM_OP_ADD}, 0}, 22, 22},
		{{2, {JM_OP_CONCAT, JM_OP_GROUPNORM}, 0}, 12, 0},
		{{2, {JM_OP_GROUPNORM_GRAD, JM_OP_SPLIT}, 0}, 12, 0}};

	(void)unused;
	for (size_t i = 0; i < sizeof(wants) / sizeof(*wants); i++) {
		int inside;

		assert_int_equal(count_of(words, &half, &wants[i].cover, &inside), wants[i].n);
		assert_int_equal(inside, wants[i].inside);
	}
}

/* Those of an Xception that only such filters read. Gradients of images meet those of three other
 * norms, too. */
static void norms_before_filters_of_each_channel_are_not_stored(void **unused)
{
	static const char *const words[] = {"xception", "hidden=4", "image=32", "classes=10", NULL};
	const struct jm_training t = {.batch = 2,
		.precision = JM_F16,
		.remake = {.flops = 1e9, .bytes = 1e9, .share = 1e-12, .beside = true}};
	const struct cover forward = {2, {JM_OP_BN_APPLY, JM_OP_CONV}, 0};
	const struct cover filter = {2, {JM_OP_BN_APPLY, JM_OP_CONV_WGRAD}, 0};
	const struct cover image = {2, {JM_OP_CONV_DGRAD, JM_OP_BN_GRAD}, 0};
	int inside;

	(void)unused;
	assert_int_equal(count_of(words, &t, &forward, &inside), 21);
	assert_int_equal(inside, 21);
	assert_int_equal(count_of(words, &t, &filter, &inside), 21);
	assert_int_equal(inside, 21);
	assert_int_equal(count_of(words, &t, &image, &inside), 24);
	/* one is added to that of a shortcut; a pooling reads another, and a norm without ReLU */
	assert_int_equal(inside, 22);
	assert_int_equal(count_of(words, &half, &forward, &inside), 0);
}

/* Those at the beginnings of an Xception's blocks but the first: neither the result of the ReLU nor
 * the gradient of it is stored. A norm without ReLU is before each of them. */
static void relus_before_filters_of_each_channel_are_not_stored(void **unused)
{
	static const char *const words[] = {"xception", "hidden=4", "image=32", "classes=10", NULL};
	const struct jm_training t = {.batch = 2,
		.precision = JM_F16,
		.remake = {.flops = 1e9, .bytes = 1e9, .share = 1e-12, .beside = true}};
	const struct cover covers[] = {{2, {JM_OP_RELU, JM_OP_CONV}, 0},
		{2, {JM_OP_RELU, JM_OP_CONV_WGRAD}, 0},
		{3, {JM_OP_CONV_DGRAD, JM_OP_RELU_GRAD, JM_OP_BN_GRAD}, 0}};
	int inside;

	(void)unused;
	for (size_t i = 0; i < sizeof(covers) / sizeof(*covers); i++) {
		assert_int_equal(count_of(words, &t, &covers[i], &inside), 11);
		assert_int_equal(inside, 11);
	}
}

/* Of a ResNet one norm is pooled, of an Xception four. */
static void norms_that_are_pooled_are_not_stored(void **unused)
{
	static const char *const resnet[] = {"resnet50", "image=32", "classes=10", NULL},
				 *const xception[] = {
					 "xception", "hidden=4", "image=32", "classes=10", NULL};
	const struct jm_training t = {
		.batch = 2, .precision = JM_F16, .own_memory = true, .keep_all = true};
	const struct cover forward = {2, {JM_OP_BN_APPLY, JM_OP_MAXPOOL}, 0},
			   backward = {2, {JM_OP_MAXPOOL_GRAD, JM_OP_BN_GRAD}, 0};
	int inside;

	(void)unused;
	saves_positions = true;
	assert_int_equal(count_of(resnet, &t, &forward, &inside), 1);
	assert_int_equal(inside, 1);
	assert_int_equal(count_of(xception, &t, &forward, &inside), 4);
	assert_int_equal(inside, 4);
	assert_int_equal(count_of(xception, &t, &backward, &inside), 4);
	assert_int_equal(inside, 4);
	saves_positions = false;
	assert_int_equal(count_of(resnet, &t, &forward, &inside), 1);
	assert_int_equal(inside, 0); /* the gradient of the pooling reads it */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_convolution_meets_the_sums_of_its_norm),
		cmocka_unit_test(norms_that_are_added_meet),
		cmocka_unit_test(a_pair_of_norms_is_not_split),
		cmocka_unit_test(the_first_norm_meets_its_pooling_in_the_gradient),
		cmocka_unit_test(relus_of_convolutions_meet_their_pooling_in_the_gradient),
		cmocka_unit_test(relus_before_filters_of_each_channel_meet_in_the_gradient),
		cmocka_unit_test(gradients_of_norms_read_what_they_need),
		cmocka_unit_test(images_that_grow_are_not_stored),
		cmocka_unit_test(group_norms_meet_what_makes_their_image),
		cmocka_unit_test(norms_before_filters_of_each_channel_are_not_stored),
		cmocka_unit_test(relus_before_filters_of_each_channel_are_not_stored),
		cmocka_unit_test(norms_that_are_pooled_are_not_stored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
