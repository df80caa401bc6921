/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contract of a backend: runs the nodes of a program on one kind of device.
 *
 * `ref` is built in and defines every op; the others are plug-ins: a shared object "<name>.so" that
 * exports `jm_backend_entry`. The engine calls in this order:
 *
 *	open     once
 *	select   per group, before any memory exists: in which layouts and with how much scratch the
 *	         backend can run it, or 0 = refused. A refused group of several nodes is split and its
 *	         nodes are offered one by one; a refused single node ends the build with its reason.
 *	alloc    the whole arena, known to the byte from what select said
 *	build    per group: shapes, layouts and ADDRESSES are final and stay so until drop. Everything
 *	         slow (code generation, algorithm choice, descriptors) belongs here
 *	capture  optional: all groups that run at a time as one
 *	run      per group and step, in program order. Never allocates, never decides
 *	sync     the host waits until everything that was queued is done
 *	drop, release, close
 *
 * A device works by itself. run, copy and fill put work on a queue and may return before it is done; the
 * work of one queue is done in the order in which it was queued. There are two queues: the compute queue,
 * which takes all of run, and the copy queue, whose copies may go on while the compute queue computes; where a
 * device has `stream`, a third one takes what ranks exchange by a transport (comm/comm.h). An
 * event marks a place in a queue; the other queue, or the host, can wait for it. A backend that does all
 * work before it returns has one queue in effect and leaves the event functions NULL.
 *
 * One device is used by one thread at a time. Backends print nothing, exit never, keep no global
 * mutable state. Errors are whole sentences in `err` (include/joulemark.h).
 */
#ifndef JM_BACKEND_H
#define JM_BACKEND_H

#include "joulemark.h"

/* Changes with any change of this file's structs, enums or meanings. */
#define JM_BACKEND_ABI 8

/* ---- types --------------------------------------------------------------------------------------- */

/*
 * f64 exists for `ref` alone, as the reference. A narrower operand is widened exactly; arithmetic and sums
 * are in f32 or better; a narrower result is rounded once, to nearest even, when it is stored. f16 (IEEE
 * 754 binary16) overflows to infinity. The two of 8 bits (Micikevicius et al., arXiv 2209.05433) do not: what
 * is too large becomes the largest finite value, 448 and 57344; e4m3 has no infinity.
 */
#define JM_DTYPES(X)                                                                               \
	X(F32, "f32", 4)                                                                           \
	X(BF16, "bf16", 2)                                                                         \
	X(F64, "f64", 8)                                                                           \
	X(I32, "i32", 4)                                                                           \
	X(F16, "f16", 2)                                                                           \
	X(F8E4M3, "f8e4m3", 1)                                                                     \
	X(F8E5M2, "f8e5m2", 1)
enum jm_dtype {
#define X(name, text, bytes) JM_##name,
	JM_DTYPES(X)
#undef X
		JM_DTYPE_COUNT
};

/*
 * How a node multiplies f32 operands: as they are, or rounded to 10 bits of mantissa first (tf32). It counts
 * for products (linear, conv, attention and their gradients); sums stay f32 or better. A backend without
 * tf32 refuses such nodes; one may always be more exact than tf32 asks, but then it is not called that.
 */
enum jm_math { JM_MATH_F32, JM_MATH_TF32 };

/* ---- tensors ------------------------------------------------------------------------------------- */

#define JM_DIMS	  6
#define JM_BLOCKS 4

/*
 * The layout of a tensor in memory. All zero = plain: row-major and dense, no padding. Else order[]
 * lists the dims from slowest to fastest, and block[] the inner blocks, outermost first: block[i]
 * elements of dim block_dim[i]; a blocked dim is padded with zeros up to the product of its blocks.
 * ("BA16a64b2a" of a matrix: order {1,0}, blocks 16 of dim 0, 64 of dim 1, 2 of dim 0.) Compared
 * with memcmp: unused entries are zero.
 */
struct jm_layout {
	int16_t rank; /* 0 = plain */
	int16_t order[JM_DIMS];
	int16_t n_blocks;
	int16_t block_dim[JM_BLOCKS], block[JM_BLOCKS];
};

#define JM_CLASSES(X)                                                                                  \
	X(PARAM, "parameters")	  /* master copy, in the slab of parameters */                         \
	X(GRAD, "gradients")	  /* of a parameter, in the slab of gradients */                       \
	X(OPT, "optimizer state") /* slabs of the optimizer */                                         \
	X(STATE, "running state") /* of the network, kept between steps: running statistics */         \
	X(COPY, "compute copies") /* a parameter in the compute type and layout */                     \
	X(INPUT, "inputs")	  /* written by the host before a step */                              \
	X(SCALAR, "scalars")	  /* losses, norms: read by the host after a step */                   \
	X(ACT, "activations")	  /* and their gradients: live from first to last use */               \
	X(SAVED,                                                                                       \
		"saved for backward") /* what a backend keeps from a forward group for its gradient */ \
	X(SCRATCH, "scratch")	      /* lives for one group */
enum jm_class {
#define X(name, text) JM_CLASS_##name,
	JM_CLASSES(X)
#undef X
		JM_CLASS_COUNT
};

/*
 * OPT, STATE, INPUT and SCALAR are always plain. A PARAM and its GRAD have the same layout: plain,
 * or dense in the layout that the backend offers for the gradient of a convolution's filter (it is
 * asked with dw as an ACT first, then with PARAM and GRAD as they were settled, and offers what
 * leaves them so). ACT and COPY have the layout that select chose. Where a consumer chose another
 * layout than the producer, the engine puts a `cast` node between.
 */
struct jm_tensor {
	char name[48];
	enum jm_class class;
	enum jm_dtype type;
	int rank;
	int64_t dim[JM_DIMS];
	struct jm_layout layout;
	size_t bytes; /* in that layout, padding included */
	/* Aligned to 64 bytes; NULL until memory is there (in select always). */
	void *data;
	/* Inside a group of several nodes: no one outside reads it, so it need not be written. */
	bool is_virtual;
	int id; /* the engine's own number */
};

/* ---- ops ----------------------------------------------------------------------------------------- */

/*
 * Shapes: B sequences, S positions, T = all leading dims multiplied (rows), C K N V widths, H heads of
 * D, G key/value heads (G divides H), P positions in the table. Images: B images of C (or K) channels,
 * Y rows and X columns, always [B,C,Y,X] as dims, however they lie in memory (layout); after a window has
 * passed over them P rows and Q columns; a window has R rows and S columns; pairs in attr are {rows,
 * columns}. "?" = optional: the pointer is NULL.
 * An op with `accumulate` bit i set ADDS to out[i] in out[i]'s type (the sum is rounded once); else
 * out[i] is overwritten in full, whatever it held. A backend that cannot add refuses; the engine then
 * adds by itself. One that cannot write dw in f32 from operands of another type refuses too; it is then
 * asked with dw in the operands' type, and a node of its own (add, or cast) brings that into f32.
 *
 * Types. c = the compute type (f32 or bf16, f64 on ref), a = the type of the residual stream (f32, or
 * c). Vectors (bias, gamma, beta), statistics, losses and gradients of parameters are f32 whatever c
 * is (f64 when c is f64), but for matrices without f32 masters (PARAM in bf16): their dw, dtable and dpos are
 * bf16, too. A backend that cannot write or add these refuses; the result then comes in f32, and a node of its
 * own (add, or cast) rounds it. A backend takes any other mix it likes and refuses the rest.
 *
 * "in place": the engine may give out[0] the same address as in[0] (same bytes, same layout) when
 * nobody needs in[0] later; the backend must then be right too. Otherwise no output overlaps an input.
 *
 * embed		in  ids i32[B,S], table f32|c[V,C], pos? f32|c[P,C], P >= S
 *			out y a[B,S,C]		y[b,s] = table[ids[b,s]] + pos[s]. 0 <= ids < V is checked
 *			before it gets here.
 * embed-grad		in  ids i32[B,S], dy a[B,S,C]
 *			out dtable f32[V,C], dpos? f32[P,C]	dtable[v] = sum of dy over ids == v;
 *			dpos[s] = sum over b of dy[b,s]; rows that nobody used are 0. Same bits every time.
 * linear		in  x c|8[..,K], w c|8[N,K], bias? f32[N], xs? f32[1], ws? f32[1]
 *			out y c[..,N]		y = xs ws x w^T + bias. 8 = f8e4m3 or f8e5m2; xs and ws are what
 *			the elements of x and w are to be multiplied by (1 where not given)
 * linear-dgrad		in  dy c|8[..,N], w c|8[N,K], dys? f32[1], ws? f32[1]
 *			out dx c[..,K]		dx = dys ws dy w
 * linear-wgrad		in  dy c|8[..,N], x c|8[..,K], dys? f32[1], xs? f32[1]
 *			out dw f32[N,K], dbias? f32[N]	dw = dys xs dy^T x; dbias = dys sum of dy over rows
 * quantize		in  x f32|bf16|f16[..], ranges? f32[R,2+H]	attr quantize.row
 *			out y 8[..], inverse f32[1], ranges? (in[1], updated), sums? f32[width]
 *			r = row `row` of ranges; m = max |x| without NaN. limit = r[0], or m where that is 0 or not
 *			given, or 1 where m is 0, too. s = min(top / limit, 2^100), top = 448 (e4m3) or 57344 (e5m2);
 *			y = s x; inverse = 1/s: all rounded to f32 first, so that y has the same bits everywhere.
 *			ranges as a result: r[0] = limit (0 where m is 0, too), r[1] = max(r[1], m). sums: of x's rows
 * rescale		in  ranges f32[R,2+H]; out ranges, the same tensor: updated
 *			In each row whose r[1] is finite and above 0 the last H maxima, r[2] and on, move up by one,
 *			the oldest is dropped, and r[2] = r[1]. In all rows r[1] = 0, r[0] = max of r[2] and on
 * gelu			in  x c[..]
 *			out y c[..]		y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 * gelu-grad		in  dy c[..], x c[..]
 *			out dx c[..]		dx = dy gelu'(x)			in place
 * layernorm		in  x a[..,C], gamma f32[C], beta? f32[C]	attr norm.eps
 *			out y c[..,C], mean f32[..], rstd f32[..]
 *			rstd = 1/sqrt(mean((x - mean)^2) + eps); y = (x - mean) rstd gamma + beta
 * layernorm-grad	in  dy c[..,C], x a[..,C], gamma f32[C], mean f32[..], rstd f32[..]
 *			out dx a[..,C], dgamma f32[C], dbeta? f32[C]	attr norm.eps
 *			h = (x - mean) rstd, g = dy gamma: dx = rstd (g - mean(g) - h mean(g h)) (means over
 *			C); dgamma = sum over rows of dy h; dbeta = sum over rows of dy. Bits 0 to 2 of
 *			`accumulate` are independent; bit 0 is the usual case (dx joins the residual's gradient).
 * rope			in  x c[B,S,(H+2G)D], at? i32[S] or [B,S]	attr rope.{heads,kv_heads,theta}
 *			out y c[B,S,(H+2G)D]							in place
 *			The first H + G heads (queries, keys) are turned, the values copied. With
 *			w_i = theta^(-2i/D), i < D/2, D even: y_i = x_i cos(s w_i) - x_{i+D/2} sin(s w_i),
 *			y_{i+D/2} = x_{i+D/2} cos(s w_i) + x_i sin(s w_i); s = at[s] or at[b,s], the positions,
 *			where given, else counted from 0.
 * rope-grad		in  dy c[..], at?; out dx c[..]	the same with -sin			in place
 * attention		in  q c[..], k c[..], v c[..], lengths? i32[B]
 *			out y c[B,S,H D], lse f32[B,H,S]	attr attention
 *			q, k and v are views (struct jm_view) of plain tensors, which may be one and the same:
 *			the packed [B,S,(H+2G)D] of H queries, then G keys, then G values, each of D; or a cache
 *			of keys and values that is longer than what is in it. S queries see T keys (attr keys).
 *			Head h uses key/value head h / (H/G). z[t] = scale q_s.k_t over all t < lengths[b] (T
 *			where not given), causal: only t <= s + lengths[b] - S; lse = log sum_t exp z[t];
 *			y = sum_t exp(z[t] - lse) v_t
 * attention-grad	in  dy c[B,S,H D], q, k, v, y, lse, lengths? (as of attention)	attr attention
 *			out dq c[..], dk c[..], dv c[..]	gradients in the views of q, k, v, of tensors like
 *			theirs; one tensor thrice where they are one. What no view covers is 0.
 * conv			in  x c[B,C,Y,X], w c[K,C/g,R,S], bias? f32[K]	attr conv
 *			out y c[B,K,P,Q]	P = (Y + 2 pad - dilation (R - 1) - 1) / stride + 1, rounded
 *			down; Q likewise. g = groups divides C and K (g = C = K: depthwise). With
 *			c' = k / (K/g) C/g + c: y[b,k,p,q] = bias[k] + sum over c < C/g, r, s of
 *			w[k,c,r,s] x[b, c', p stride - pad + r dilation, q stride - pad + s dilation], where x
 *			is 0 outside.
 * conv-dgrad		in  dy c[B,K,P,Q], w c[K,C/g,R,S]	attr conv
 *			out dx c[B,C,Y,X]	Y and X are the output's own: a stride may leave several
 * conv-wgrad		in  dy c[B,K,P,Q], x c[B,C,Y,X]		attr conv
 *			out dw f32[K,C/g,R,S], dbias? f32[K]
 * bn-stats		in  x c[B,C,Y,X]
 *			out mean f32[C], var f32[C]	of a channel over its n = B Y X elements;
 *			var = mean((x - mean)^2), with an error that does not grow with mean^2 more than
 *			sums in f32 of squares make it
 * bn-finalize		in  mean f32[C], var f32[C]		attr bn.{eps,momentum,count}
 *			out rstd f32[C], rmean? f32[C], rvar? f32[C]
 *			rstd = 1/sqrt(var + eps). Updated, that is read and written, where given (STATE):
 *			rmean += momentum (mean - rmean); rvar += momentum (var n/(n - 1) - rvar), n = count
 * bn-apply		in  x c[B,C,Y,X], mean f32[C], rstd f32[C], gamma f32[C], beta f32[C], add? c[B,C,Y,X]
 *			out y c[B,C,Y,X]	attr bn.relu				in place
 *			y = (x - mean) rstd gamma + beta + add; with relu, max(0, that)
 * bn-grad		in  dy c[B,C,Y,X], x c[B,C,Y,X], y? c[B,C,Y,X], gamma f32[C], mean f32[C], rstd f32[C],
 *			beta? f32[C]
 *			out dx c[B,C,Y,X], dgamma f32[C], dbeta f32[C], dadd? c[B,C,Y,X]
 *			attr bn.relu (with it either y or beta is there, else neither)		in place
 *			e = y > 0 ? dy : 0 with relu, else dy; beta in place of y: y = (x - mean) rstd gamma +
 *			beta, which nothing was added to. h = (x - mean) rstd: dbeta = sum of e over the
 *			channel, dgamma = sum of e h, dx = gamma rstd (e - dbeta/n - h dgamma/n), dadd = e. The
 *			sums in dx are this node's own, also where dgamma and dbeta are added to what is there.
 * rmsnorm		in  x a[..,C], gamma f32[C]		attr norm.eps
 *			out y c[..,C], rstd f32[..]	rstd = 1/sqrt(mean(x^2) + eps); y = x rstd gamma
 * rmsnorm-grad		in  dy c[..,C], x a[..,C], gamma f32[C], rstd f32[..]
 *			out dx a[..,C], dgamma f32[C]		attr norm.eps
 *			h = x rstd, g = dy gamma: dx = rstd (g - h mean(g h)); dgamma = sum over rows of dy h
 * maxpool		in  x c[B,C,Y,X]; out y c[B,C,P,Q]	attr pool.{kernel,stride,pad}
 *			P = (Y + 2 pad - kernel) / stride + 1, rounded down; the padding never is the largest
 * maxpool-grad		in  dy c[B,C,P,Q], x c[B,C,Y,X]; out dx c[B,C,Y,X]	attr pool
 *			each dy goes to the first of the largest in its window, rows before columns
 * avgpool		in  x c[B,C,Y,X]; out y c[B,C,P,Q]	attr pool
 *			the sum of a window by kernel[0] kernel[1] with pool.count_pad, else by how many of
 *			its elements lie inside
 * avgpool-grad		in  dy c[B,C,P,Q]; out dx c[B,C,Y,X]	attr pool
 * gap			in  x c[B,C,Y,X]; out y c[B,C]		the mean over Y and X
 * gap-grad		in  dy c[B,C]; out dx c[B,C,Y,X]	dx = dy / (Y X)
 * relu			in  x c[..]; out y c[..]		y = max(0, x)			in place
 * relu-grad		in  dy c[..], y c[..]; out dx c[..]	dx = y > 0 ? dy : 0		in place
 * gelu-erf		in  x c[..]; out y c[..]		y = x/2 (1 + erf(x/sqrt(2)))
 * gelu-erf-grad	in  dy c[..], x c[..]; out dx c[..]					in place
 * silu			in  x c[..]; out y c[..]		y = x / (1 + exp(-x))
 * silu-grad		in  dy c[..], x c[..]; out dx c[..]					in place
 * swiglu		in  x c[..,2N]; out y c[..,N]		y[i] = silu(x[i]) x[N + i]
 * swiglu-grad		in  dy c[..,N], x c[..,2N]; out dx c[..,2N]
 * tokens		in  x c[B,C,P,Q], first? f32[C], pos? f32[S,C]
 *			out y a[B,S,C]		S = P Q, and one more with first: y[b,0] = first + pos[0];
 *			then y[b,.,c] = x[b,c,p,q] + pos[.] row by row
 * tokens-grad		in  dy a[B,S,C]
 *			out dx c[B,C,P,Q], dfirst? f32[C], dpos? f32[S,C]
 * first		in  x a[B,S,C]; out y a[B,C]		y[b] = x[b,0]
 * first-grad		in  dy a[B,C]; out dx a[B,S,C]		dx[b,0] = dy[b], else 0
 * dropout		in  x a|c[..], now i32[1]; out y a|c[..]	attr dropout		in place
 *			y = x / (1 - p) where kept, else 0. Element i (counted row-major by dims, whatever
 *			the layout) is kept when its 32 bits >= floor(p 2^32): the lower (i even) or upper
 *			half of jm_rng(jm_rng(dropout.seed, now), i / 2) of engine/rng.h. Its own gradient.
 * add			in  a a|c[..], b a|c[..]
 *			out y a|c[..]		y = a + b				in place
 * softmax-xent		in  logits c[..,V], target i32[..] (0 <= target < V), scale? f32[2] = {S, 1/S}
 *			attr xent.{scale,classes}: beyond the first `classes` (0: V) logits do not count, dlogits is 0
 *			out loss f32[1], dlogits? c[..,V]		in place: dlogits (out[1]) over in[0]
 *			loss = mean over rows of (log sum exp logits - logits[target]), not scaled;
 *			dlogits = xent.scale S / T (softmax(logits) - onehot(target)), with S read when it runs
 *			and 1 where scale is not given. The mean is summed so that
 *			its error does not grow with T (f64, or pairwise).
 * mse			in  y c[..], target c|f32[..], scale? f32[2] = {S, 1/S}
 *			out loss f32[1], dy? c[..]	attr xent.scale
 *			loss = mean over all elements of (y - target)^2, not scaled; dy = 2 xent.scale S / n
 *			(y - target), S and the sum as of softmax-xent
 * top1			in  logits c[..,V], target i32[..]
 *			out share f32[1]	of the rows whose largest logit is logits[target], the first of
 *			equals
 * cast			in  x any[..]; out y any[..]	the same elements in another type and/or layout;
 *			padding of a blocked output is 0. f32 -> f32 with unlike layouts is a reorder.
 *			Both layouts are given in the tensors; select keeps them.
 * norm			in  x f32|bf16[n], more? f32[..]
 *			out y f32[1]	y = sqrt(sum x^2 + sum more^2), summed in f64 or pairwise; NaN or infinity
 *			in them gives a y that is not finite
 * adamw		in  g f32|bf16[n], norm? f32[1], now f32[3] = {lr, 1 - beta1^t, 1 - beta2^t}, t from 1,
 *			scale? f32[2] = {S, 1/S}
 *			out p f32[n], m f32[n], v f32[n]		updated: read and written
 *			attr adamw.{beta1,beta2,eps,weight_decay,clip,n_decay}
 *			When norm is given and not finite, nothing changes. With 1/S read when it runs (1 where
 *			scale is not given), g' = g/S min(1, clip/(norm/S + 1e-6)) when norm is given and
 *			clip > 0, else g/S. For i < n_decay first p -= lr weight_decay p.
 *			m = beta1 m + (1 - beta1) g'; v = beta2 v + (1 - beta2) g'^2;
 *			p -= lr/now[1] m / (sqrt(v/now[2]) + eps). One pass over memory.
 * adam			as adamw, but decay joins the gradient: for i < n_decay g' += weight_decay p, and p is
 *			not shrunk by itself (Kingma and Ba, arXiv 1412.6980)
 *			For all three updates: p, m and v are f32, or all bf16. Then `now` has one element more,
 *			the number t of the step, and each result x of element i is rounded stochastically:
 *			with r = 16 bits of jm_rng(jm_rng(0, t), i) of engine/rng.h, the lowest for p, the next
 *			for m, the next for v, it is the upper half of (bits of x as f32) + r.
 * sgd			in  g f32|bf16[n], norm? f32[1], now f32[1] = {lr}, scale? f32[2] = {S, 1/S}
 *			out p f32[n], m f32[n]			updated: read and written
 *			attr sgd.{momentum,weight_decay,clip,nesterov,n_decay}
 *			norm, clip and g' as adamw. For i < n_decay g' += weight_decay p; m = momentum m + g';
 *			p -= lr (nesterov ? g' + momentum m : m).
 * all-reduce-start	in  x f32|f64[n]; out y, the same tensor: a stretch of the gradients, which becomes the sum
 *			over the ranks of the gang. A backend is never asked for it, nor for the next one: the
 *			engine runs both, over the gang's communicator
 * all-reduce-wait	in  x f32|f64[n]; out y, the same tensor: all gradients, once every start is done
 */
#define JM_OPS(X)                                                                                  \
	X(EMBED, "embed")                                                                          \
	X(EMBED_GRAD, "embed-grad")                                                                \
	X(LINEAR, "linear")                                                                        \
	X(LINEAR_DGRAD, "linear-dgrad")                                                            \
	X(LINEAR_WGRAD, "linear-wgrad")                                                            \
	X(GELU, "gelu")                                                                            \
	X(GELU_GRAD, "gelu-grad")                                                                  \
	X(LAYERNORM, "layernorm")                                                                  \
	X(LAYERNORM_GRAD, "layernorm-grad")                                                        \
	X(ROPE, "rope")                                                                            \
	X(ROPE_GRAD, "rope-grad")                                                                  \
	X(ATTENTION, "attention")                                                                  \
	X(ATTENTION_GRAD, "attention-grad")                                                        \
	X(ADD, "add")                                                                              \
	X(SOFTMAX_XENT, "softmax-xent")                                                            \
	X(CAST, "cast")                                                                            \
	X(NORM, "norm")                                                                            \
	X(ADAMW, "adamw")                                                                          \
	X(CONV, "conv")                                                                            \
	X(CONV_DGRAD, "conv-dgrad")                                                                \
	X(CONV_WGRAD, "conv-wgrad")                                                                \
	X(BN_STATS, "bn-stats")                                                                    \
	X(BN_FINALIZE, "bn-finalize")                                                              \
	X(BN_APPLY, "bn-apply")                                                                    \
	X(BN_GRAD, "bn-grad")                                                                      \
	X(RMSNORM, "rmsnorm")                                                                      \
	X(RMSNORM_GRAD, "rmsnorm-grad")                                                            \
	X(MAXPOOL, "maxpool")                                                                      \
	X(MAXPOOL_GRAD, "maxpool-grad")                                                            \
	X(AVGPOOL, "avgpool")                                                                      \
	X(AVGPOOL_GRAD, "avgpool-grad")                                                            \
	X(GAP, "gap")                                                                              \
	X(GAP_GRAD, "gap-grad")                                                                    \
	X(RELU, "relu")                                                                            \
	X(RELU_GRAD, "relu-grad")                                                                  \
	X(GELU_ERF, "gelu-erf")                                                                    \
	X(GELU_ERF_GRAD, "gelu-erf-grad")                                                          \
	X(SILU, "silu")                                                                            \
	X(SILU_GRAD, "silu-grad")                                                                  \
	X(SWIGLU, "swiglu")                                                                        \
	X(SWIGLU_GRAD, "swiglu-grad")                                                              \
	X(TOKENS, "tokens")                                                                        \
	X(TOKENS_GRAD, "tokens-grad")                                                              \
	X(FIRST, "first")                                                                          \
	X(FIRST_GRAD, "first-grad")                                                                \
	X(DROPOUT, "dropout")                                                                      \
	X(ADAM, "adam")                                                                            \
	X(SGD, "sgd")                                                                              \
	X(QUANTIZE, "quantize")                                                                    \
	X(RESCALE, "rescale")                                                                      \
	X(TOP1, "top1")                                                                            \
	X(MSE, "mse")                                                                              \
	X(ALL_REDUCE_START, "all-reduce-start")                                                    \
	X(ALL_REDUCE_WAIT, "all-reduce-wait")
enum jm_op {
#define X(name, text) JM_OP_##name,
	JM_OPS(X)
#undef X
		JM_OP_COUNT
};

/* Heads within a tensor, in elements: that of sequence b, position s, head h begins at offset +
 * b batch + s row + h head, and its D elements are adjacent. */
struct jm_view {
	int64_t offset, batch, row, head;
};

union jm_attr {
	struct {
		double eps;
	} norm; /* layernorm, rmsnorm and their gradients */
	struct {
		int groups;
		int stride[2], pad[2], dilation[2];
		/* x needs no gradient; by convention the model's FLOPs count one all the same */
		bool stem;
	} conv;
	struct {
		int kernel[2], stride[2], pad[2];
		bool count_pad;
	} pool;
	struct {
		double eps, momentum;
		int64_t count; /* n, elements of a channel */
		bool relu;
	} bn;
	struct {
		double p; /* of an element to be dropped, below 1 */
		uint64_t seed;
	} dropout;
	struct {
		int heads, kv_heads;
		double theta; /* 10000 */
	} rope;
	struct {
		int heads, kv_heads;
		bool causal;
		double scale;	     /* 1/sqrt(D) */
		int64_t depth, keys; /* D, T */
		struct jm_view q, k, v;
	} attention;
	struct {
		double scale;	 /* 1; 1/k for k micro-steps whose gradients add up */
		int64_t classes; /* softmax-xent: of V; 0 = all */
	} xent;			 /* softmax-xent, mse */
	struct {
		int64_t used; /* of N, which the model has; the others fill rows up. 0 = all */
	} linear;	      /* and its gradients: a hint for FLOPs */
	struct {
		double beta1, beta2, eps, weight_decay;
		double clip;	 /* largest global norm; 0 = no clipping */
		int64_t n_decay; /* weight decay touches the first n_decay elements only */
	} adamw;		 /* adam too */
	struct {
		int64_t row; /* of ranges */
	} quantize;
	struct {
		double momentum, weight_decay;
		double clip; /* as adamw's */
		bool nesterov;
		int64_t n_decay;
	} sgd;
};

#define JM_NODE_IN  10
#define JM_NODE_OUT 4

struct jm_node {
	enum jm_op op;
	int n_in, n_out; /* of the op, absent optional ones included */
	struct jm_tensor *in[JM_NODE_IN], *out[JM_NODE_OUT];
	union jm_attr attr;
	enum jm_math math;
	unsigned accumulate;	   /* bit i: out[i] += */
	bool again;		   /* what an earlier node of the step computed already */
	const struct jm_node *fwd; /* gradient ops: the forward node, as a hint; else NULL */
	int id;			   /* the engine's own number */
	/* What the mathematics needs; what the op's definition computes; bytes of operands and results. */
	double flops_model, flops_executed, bytes;
};

/* ---- groups: what is offered, chosen, built and run ------------------------------------------------- */

/*
 * One node, or several that may run as one. The covers that the engine offers are the rows of a table
 * (engine/group.c), each cut short from its end when refused; refuse what is not known, more will come:
 * linear + softmax-xent + linear-wgrad + linear-dgrad (logits and their gradient are virtual), conv +
 * bn-stats + bn-finalize + bn-apply, bn-stats + bn-finalize + bn-apply (mean and rstd are kept when
 * backward needs them: not virtual), conv + bn-stats + bn-finalize, bn-apply + conv, conv + relu, linear + gelu
 * or gelu-erf or silu or swiglu (likewise the linear's output), linear-dgrad + gelu-grad or gelu-erf-grad, add +
 * layernorm or rmsnorm (likewise the sum), norm + adamw or adam or sgd, layernorm-grad or rmsnorm-grad + cast.
 */
#define JM_GROUP_MAX 8
struct jm_group {
	int n_nodes;
	const struct jm_node *node[JM_GROUP_MAX]; /* in program order */
	const struct jm_group *fwd; /* gradient groups: the group of the forward node; else NULL */
	/* In build: memory asked for by the choice; NULL when it asked for none. */
	void *scratch;
	void *saved; /* written by this group in each step, read by the groups whose fwd it is */
};

/* One way to run a group. in/out: the layouts it needs, by node and operand; plain where zero. */
struct jm_choice {
	struct jm_layout in[JM_GROUP_MAX][JM_NODE_IN], out[JM_GROUP_MAX][JM_NODE_OUT];
	size_t scratch; /* bytes, only during the group's run */
	size_t saved;	/* bytes, from the forward group until its last gradient group */
	double seconds; /* rough cost, to weigh choices against each other; NAN = cannot say */
	double flops_executed; /* NAN = as the nodes say */
	uint64_t tag;	       /* the backend's own; comes back in build */
};
#define JM_CHOICE_MAX 4

/* ---- the backend ----------------------------------------------------------------------------------- */

struct jm_device_props {
	char name[96]; /* "Intel(R) Xeon(R) Processor, 2 threads" */
	/* The names by which meters identify it: "GPU-..." as in NVML, and "0000:1b:00.0" where
	 * it is on a PCI bus; "" = none. */
	char uuid[48], bus[24];
	size_t memory_bytes; /* that the program may use; 0 = unknown */
	bool host_memory;    /* its memory is that of this machine, less what other processes use */
	/* Types with native instructions; the others are emulated and slow, which is reported to
	 * the user. */
	bool native[JM_DTYPE_COUNT];
	double peak_flops[JM_DTYPE_COUNT]; /* dense, per second; NAN = unknown */
	double peak_tf32;		   /* likewise, of f32 operands in tf32; 0 = unknown */
	double peak_bytes;		   /* of memory, per second; NAN = unknown */
};

/* What the device's clock was at some time between two of the host's CLOCK_MONOTONIC; ns. */
struct jm_device_time {
	int64_t device_ns, before_ns, after_ns;
};

enum jm_copy { JM_TO_DEVICE, JM_TO_HOST, JM_ON_DEVICE };
enum jm_queue { JM_QUEUE_COMPUTE, JM_QUEUE_COPY, JM_QUEUE_COMM, JM_QUEUE_COUNT };

/*
 * dev: what open returned. The functions under "optional" may be NULL; engine/device.h has their defaults
 * and is what the engine calls.
 */
struct jm_backend {
	uint32_t abi; /* JM_BACKEND_ABI; first, so that every version can be recognised */
	const char *name;
	const char *summary;
	/* index: which device; threads: of the host, 0 = all this process may use. */
	int (*open)(int index, int threads, void **ret_dev, struct jm_err *err);
	void (*props)(void *dev, struct jm_device_props *ret);
	/*
	 * Fills at most JM_CHOICE_MAX choices (zeroed by the caller), best first, and returns how many.
	 * 0 = refused: err then holds the reason. Layouts of tensors that are decided already are in the
	 * tensors: a choice that takes them as they are costs no reorder. Cheap: no code generation.
	 */
	int (*select)(void *dev, const struct jm_group *group, struct jm_choice *choice,
		struct jm_err *err);
	int (*build)(void *dev, const struct jm_group *group, const struct jm_choice *choice,
		void **ret_exec, struct jm_err *err);
	/* Queues the work of an exec on the compute queue. */
	int (*run)(void *dev, void *exec, struct jm_err *err);
	void (*drop)(void *dev, void *exec); /* takes NULL; nothing of it is queued any more */
	/* Zeroed, aligned to 64 bytes or more. NULL = out of memory. */
	void *(*alloc)(void *dev, size_t bytes);
	void (*release)(void *dev, void *memory); /* takes NULL */
	/* Both stretches of memory belong to the device until the copy is done: an event behind it, or sync,
	 * says when. Host memory that did not come from pinned_alloc may be copied before it returns. */
	int (*copy)(void *dev, enum jm_queue queue, void *to, const void *from, size_t bytes,
		enum jm_copy kind, struct jm_err *err);
	int (*sync)(void *dev, struct jm_err *err);
	void (*close)(void *dev); /* takes NULL */

	/* ---- optional ---- */
	/*
	 * Several built groups as one exec: all that runs before the micro-steps, in each micro-step, or in
	 * the update. The groups outlive it. The order is part of the contract: the groups run one after
	 * the other as given, on one queue, and memory passes from one to a later one as soon as the former
	 * is done. Two of them may overlap only where no byte that one of them writes (results, scratch,
	 * saved) is touched by the other; addresses are final, so a backend can tell. *ret_exec left NULL:
	 * the engine runs the groups one by one.
	 */
	int (*capture)(void *dev, void *const *exec, int n, void **ret_exec, struct jm_err *err);
	/* Every byte of device memory becomes `value`. Default: copies. */
	int (*fill)(void *dev, enum jm_queue queue, void *to, unsigned char value, size_t bytes,
		struct jm_err *err);
	/* Host memory that copies reach without the processor's help, aligned to 64 bytes. NULL = out of
	 * memory. Default: ordinary memory. */
	void *(*pinned_alloc)(void *dev, size_t bytes);
	void (*pinned_release)(void *dev, void *memory); /* takes NULL */
	/* Bytes that alloc could give now. Default: unknown. */
	int (*memory_free)(void *dev, size_t *ret, struct jm_err *err);
	/*
	 * Events: all of them or none. Default: record waits for the device and notes the host's clock.
	 *	record   marks the place behind all that the queue holds now; again = at the new place
	 *	follow   what is queued from now on waits until the event's place is reached
	 *	wait     the host waits for it; query: 1 = reached, 0 = not yet
	 *	seconds  between the places of two events that are reached
	 * An event that was never recorded counts as reached.
	 */
	int (*event_new)(void *dev, void **ret_event, struct jm_err *err);
	int (*event_record)(void *dev, void *event, enum jm_queue queue, struct jm_err *err);
	int (*event_follow)(void *dev, void *event, enum jm_queue queue, struct jm_err *err);
	int (*event_wait)(void *dev, void *event, struct jm_err *err);
	int (*event_query)(void *dev, void *event, struct jm_err *err);
	int (*event_seconds)(void *dev, void *from, void *to, double *ret, struct jm_err *err);
	void (*event_drop)(void *dev, void *event); /* takes NULL */
	/* The vendor's handle of a queue, for transports that queue work of their own there; makes the device
	 * current in the calling thread. Default: there is no third queue, and ranks exchange host memory. */
	int (*stream)(void *dev, enum jm_queue queue, void **ret, struct jm_err *err);
	/* A text for users: names and versions of driver and libraries; missing parts and the
	 * reason. Default: empty. */
	void (*versions)(void *dev, char *ret, size_t size);
	/* From now on run uses only about this share of the device's units (multiprocessors of a GPU), without special
	 * rights; called at most once, directly after open. Returns how many of how many. Default: not supported. */
	int (*restrict_units)(
		void *dev, double share, int *ret_units, int *ret_of, struct jm_err *err);
	/* The device's own clock, in ns from any start; both or none. stamp queues on the compute queue: *to, in memory
	 * of pinned_alloc, becomes that clock. clock reads it from the host, when nothing is queued: the most exact of
	 * many exchanges. */
	int (*stamp)(void *dev, uint64_t *to, struct jm_err *err);
	int (*clock)(void *dev, struct jm_device_time *ret, struct jm_err *err);
};

/* What a plug-in exports. It links what it needs of joulemark (lib/base/err.c, engine/tensor.c) itself. */
JM_API const struct jm_backend *jm_backend_entry(void);

#endif
