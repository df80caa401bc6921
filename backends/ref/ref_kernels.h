/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference backend defines every op in plain loops. All arithmetic is in f64; operands are
 * widened before and results rounded once after, so that the same loops serve f32, bf16 and f64.
 */
#ifndef JM_REF_KERNELS_H
#define JM_REF_KERNELS_H

#include "engine/graph/tensor.h"

/*
 * in, out: operands widened to f64, NULL if absent. out is zero before the call; after it the
 * caller writes or adds it to the real result. Ops marked "direct" get NULL for both and work on
 * the tensors directly.
 */
typedef void jm_ref_kernel(const struct jm_node *n, double *const *in, double *const *out);

jm_ref_kernel jm_ref_embed, jm_ref_embed_grad, jm_ref_put_rows, jm_ref_put_rows_grad; /* embed.c */
jm_ref_kernel jm_ref_linear, jm_ref_linear_dgrad, jm_ref_linear_wgrad;		      /* linear.c */
jm_ref_kernel jm_ref_layernorm, jm_ref_layernorm_grad; /* layernorm.c */
jm_ref_kernel jm_ref_attention, jm_ref_attention_grad, jm_ref_rope,
	jm_ref_rope_grad;					      /* attention.c */
jm_ref_kernel jm_ref_softmax_xent, jm_ref_top1, jm_ref_mse;	      /* loss.c */
jm_ref_kernel jm_ref_gelu, jm_ref_gelu_grad, jm_ref_add, jm_ref_cast; /* pointwise.c, direct */
jm_ref_kernel jm_ref_gelu_erf, jm_ref_gelu_erf_grad, jm_ref_relu, jm_ref_relu_grad, jm_ref_silu,
	jm_ref_silu_grad, jm_ref_gelu_quick, jm_ref_gelu_quick_grad,
	jm_ref_dropout;			       /* pointwise.c, direct */
jm_ref_kernel jm_ref_quantize, jm_ref_rescale; /* quantize.c, direct */
jm_ref_kernel jm_ref_cache_write, jm_ref_attention_pages, jm_ref_rows, jm_ref_made_ids,
	jm_ref_sample;				    /* pages.c, direct */
jm_ref_kernel jm_ref_rows_grad, jm_ref_wanted_rows; /* pages.c, not direct */
jm_ref_kernel jm_ref_geglu, jm_ref_geglu_grad;	    /* pointwise.c, not direct */
jm_ref_kernel jm_ref_add_noise, jm_ref_draw_moments, jm_ref_step_waves,
	jm_ref_colours;				 /* noise.c */
jm_ref_kernel jm_ref_swiglu, jm_ref_swiglu_grad; /* pointwise.c, not direct */
jm_ref_kernel jm_ref_norm, jm_ref_adamw, jm_ref_adam, jm_ref_sgd,
	jm_ref_average;						 /* update.c, direct */
jm_ref_kernel jm_ref_rmsnorm, jm_ref_rmsnorm_grad;		 /* layernorm.c */
jm_ref_kernel jm_ref_conv, jm_ref_conv_dgrad, jm_ref_conv_wgrad; /* conv.c */
jm_ref_kernel jm_ref_bn_stats, jm_ref_bn_apply, jm_ref_bn_grad;	 /* batchnorm.c */
jm_ref_kernel jm_ref_bn_finalize;				 /* batchnorm.c, direct */
jm_ref_kernel jm_ref_concat, jm_ref_split;			 /* concat.c */
jm_ref_kernel jm_ref_groupnorm, jm_ref_groupnorm_grad;		 /* groupnorm.c */
jm_ref_kernel jm_ref_dft, jm_ref_idft, jm_ref_mix_modes, jm_ref_mix_modes_dgrad,
	jm_ref_mix_modes_wgrad, jm_ref_relative_l2;  /* spectral.c */
jm_ref_kernel jm_ref_upsample, jm_ref_upsample_grad; /* pool.c */
jm_ref_kernel jm_ref_maxpool, jm_ref_maxpool_grad, jm_ref_avgpool, jm_ref_avgpool_grad, jm_ref_gap,
	jm_ref_gap_grad, jm_ref_tokens, jm_ref_tokens_grad, jm_ref_first,
	jm_ref_first_grad; /* pool.c */

#endif
