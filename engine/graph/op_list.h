/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of ops, and the definition of every one. Part of the contract of a backend (backend.h):
 * a change of the list or of a meaning increases JM_BACKEND_ABI.
 */
#ifndef JM_OP_LIST_H
#define JM_OP_LIST_H

/*
 * Shapes: B sequences, S positions, T = all leading dims multiplied (rows), C K N V widths, H heads
 * of D, G key/value heads (G divides H), P positions in the table. Images: B images of C (or K)
 * channels, Y rows and X columns, always [B,C,Y,X] as dims, independent of the layout in memory;
 * the result of a window has P rows and Q columns; a window has R rows and S columns; pairs in attr
 * are {rows, columns}. "?" = optional: the pointer may be NULL. An op with `accumulate` bit i set
 * ADDS to out[i] in out[i]'s type (the sum is rounded once); else out[i] is overwritten in full. If
 * a backend cannot add, it refuses the node, and the engine inserts an add node. If it cannot write
 * dw in f32 from operands of another type, it refuses, too; the engine then offers the node with dw
 * in the operands' type, and a separate node (add or cast) converts dw to f32.
 *
 * Types. c = the compute type (f32 or bf16, f64 on ref), a = the type of the residual stream (f32,
 * or c). Vectors (bias, gamma, beta), statistics, losses and gradients of parameters are f32 for
 * every c (f64 when c is f64), except for matrices without f32 masters (PARAM in bf16), whose dw,
 * dtable and dpos are bf16, too. A backend that cannot write or add these refuses; the engine then
 * requests the result in f32, and a separate node (add or cast) rounds it. A backend may support
 * further combinations of types and refuses all others.
 *
 * "in place": the engine may give out[0] the address of in[0] (same bytes, same layout) if no later
 * node reads in[0]; the backend must support this. In a group of the gradient of an activation or a
 * norm and that op again (group.c), the op's result may have the address of in[0] of the gradient,
 * whose own result that of the operand of both. Otherwise no output overlaps an input.
 *
 * embed: in  ids i32[B,S], table f32|c[V,C], pos? f32|c[P,C], P >= S
 *	out y a[B,S,C]	y[b,s] = table[ids[b,s]] + pos[s]. 0 <= ids < V holds
 * embed-grad: in  ids i32[B,S], dy a[B,S,C]
 *	out dtable f32[V,C], dpos? f32[P,C]	dtable[v] = sum of dy over ids == v;
 *	dpos[s] = sum over b of dy[b,s]; other rows are 0. The bits are the same every time.
 * linear: in  x c|8[..,K], w c|8[N,K], bias? f32[N], xs? f32[1] or [T], ws? f32[1] or [N]
 *	out y c[..,N]	y = xs ws x w^T + bias. 8 = f8e4m3 or f8e5m2; xs and ws are
 *	the factors of the elements of x and w (1 if absent), or of each of their rows
 * linear-dgrad: in  dy c|8[..,N], w c|8[N,K], dys? f32[1], ws? f32[1]
 *	out dx c[..,K]	dx = dys ws dy w
 * linear-wgrad: in  dy c|8[..,N], x c|8[..,K], dys? f32[1], xs? f32[1]
 *	out dw f32[N,K], dbias? f32[N]	dw = dys xs dy^T x; dbias = dys sum of dy over rows
 * quantize: in  x f32|bf16|f16[..], ranges? f32[R,2+H]	attr quantize.row
 *	out y 8[..], inverse f32[1] or [T], ranges? (in[1], updated), sums? f32[width]
 *	r = row `row` of ranges; m = max |x| without NaN. limit = r[0]; m if r[0] is 0 or
 *	absent; 1 if m is 0, too. s = min(top / limit, 2^100), top = 448 (e4m3) or 57344 (e5m2);
 *	y = s x; inverse = 1/s: all are rounded to f32 first, so that every backend gives the
 *	same bits. ranges as a result: r[0] = limit (0 if m is 0, too), r[1] = max(r[1], m).
 *	sums: over the rows of x. inverse of T: each row of x has its own m; without ranges and sums
 * rescale: in  ranges f32[R,2+H]; out ranges, the same tensor: updated
 *	In each row whose r[1] is finite and above 0 the last H maxima, r[2] and on, move up by one,
 *	the oldest is dropped, and r[2] = r[1]. In all rows r[1] = 0, r[0] = max of r[2] and on
 * gelu: in  x c[..]; out y c[..]	y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 * gelu-grad: in  dy c[..], x c[..]; out dx c[..]	dx = dy gelu'(x)	in place
 * layernorm: in  x a[..,C], gamma f32[C], beta? f32[C]	attr norm.eps
 *	out y c[..,C], mean f32[..], rstd f32[..]
 *	rstd = 1/sqrt(mean((x - mean)^2) + eps); y = (x - mean) rstd gamma + beta
 * layernorm-grad: in  dy c[..,C], x a[..,C], gamma f32[C], mean f32[..], rstd f32[..]
 *	out dx a[..,C], dgamma? f32[C], dbeta? f32[C]	attr norm.eps
 *	h = (x - mean) rstd, g = dy gamma: dx = rstd (g - mean(g) - h mean(g h)) (means over
 *	C); dgamma = sum over rows of dy h; dbeta = sum over rows of dy. Bits 0 to 2 of
 *	`accumulate` are independent; bit 0 is the usual case (dx joins the residual's gradient).
 * rope: in  x c[B,S,(H+2G)D], at? i32[S] or [B,S]	attr rope.{heads,kv_heads,rotary}
 *	out y c[B,S,(H+2G)D]	in place
 *	The first H + G heads (queries, keys) are rotated, the values copied. With w_i =
 *	jm_rotary_speed(i, D), i < D/2, D even: y_i = x_i cos(s w_i) - x_{i+D/2} sin(s w_i),
 *	y_{i+D/2} = x_{i+D/2} cos(s w_i) + x_i sin(s w_i); s is the position: at[s] or at[b,s] if
 *	given, else counted from 0.
 * rope-grad: in  dy c[..], at?; out dx c[..]	the same with -sin	in place
 * attention: in  q c[..], k c[..], v c[..], lengths? i32[B]
 *	out y c[B,S,H D], lse f32[B,H,S]	attr attention
 *	q, k and v are views (struct jm_view) of plain tensors, which may be the same tensor:
 *	the packed [B,S,(H+2G)D] of H queries, then G keys, then G values, each of D; or a cache
 *	of keys and values with free space at its end. S queries see T keys (attr keys). Head h
 *	uses key/value head h / (H/G). z[t] = scale q_s.k_t over all t < lengths[b] (T if
 *	absent), causal: only t <= s + lengths[b] - S; lse = log sum_t exp z[t]; y = sum_t
 *	exp(z[t] - lse) v_t
 * attention-grad: in  dy c[B,S,H D], q, k, v, y, lse, lengths? (as of attention)	attr
 *	attention
 *	out dq c[..], dk c[..], dv c[..]	gradients in views like those of q, k, v; the same
 *	tensor three times if q, k and v are one. Elements outside the views are 0.
 * conv: in  x c[B,C,Y,X], w c[K,C/g,R,S], bias? f32[K]	attr conv
 *	out y c[B,K,P,Q]	P = (Y + 2 pad + more - dilation (R - 1) - 1) / stride + 1, rounded
 *	down; Q likewise. g = groups divides C and K (g = C = K: depthwise). With
 *	c' = k / (K/g) C/g + c: y[b,k,p,q] = bias[k] + sum over c < C/g, r, s of
 *	w[k,c,r,s] x[b, c', p stride - pad + r dilation, q stride - pad + s dilation], where x
 *	is 0 outside.
 * conv-dgrad: in  dy c[B,K,P,Q], w c[K,C/g,R,S]	attr conv
 *	out dx c[B,C,Y,X]	Y and X are those of dx
 * conv-wgrad: in  dy c[B,K,P,Q], x c[B,C,Y,X]	attr conv
 *	out dw f32[K,C/g,R,S], dbias? f32[K]
 * bn-stats: in  x c[B,C,Y,X]
 *	out mean f32[C], var f32[C]	of a channel over its n = B Y X elements;
 *	var = mean((x - mean)^2), with an error that grows with mean^2 no faster than that of
 *	f32 sums of squares
 * bn-finalize: in  mean f32[C], var f32[C]	attr bn.{eps,momentum,count}
 *	out rstd f32[C], rmean? f32[C], rvar? f32[C]
 *	rstd = 1/sqrt(var + eps). Updated (read and written) if given (STATE): rmean += momentum
 *	(mean - rmean); rvar += momentum (var n/(n - 1) - rvar), n = count
 * bn-apply: in  x c[B,C,Y,X], mean f32[C], rstd f32[C], gamma f32[C], beta f32[C], add? c[B,C,Y,X]
 *	out y c[B,C,Y,X]	attr bn.relu	in place
 *	y = (x - mean) rstd gamma + beta + add; with relu, max(0, that)
 * bn-grad: in  dy c[B,C,Y,X], x c[B,C,Y,X], y? c[B,C,Y,X], gamma f32[C], mean f32[C], rstd f32[C],
 *	beta? f32[C]
 *	out dx c[B,C,Y,X], dgamma f32[C], dbeta f32[C], dadd? c[B,C,Y,X]
 *	attr bn.relu (with relu either y or beta is given, else neither)	in place
 *	e = y > 0 ? dy : 0 with relu, else dy; beta given in place of y: y = (x - mean) rstd
 *	gamma + beta, without add. h = (x - mean) rstd: dbeta = sum of e over the channel,
 *	dgamma = sum of e h, dx = gamma rstd (e - dbeta/n - h dgamma/n), dadd = e. The sums in
 *	dx are those of this node only, also if dgamma and dbeta accumulate.
 * rmsnorm: in  x a[..,C], gamma f32[C]	attr norm.eps
 *	out y c[..,C], rstd f32[..]	rstd = 1/sqrt(mean(x^2) + eps); y = x rstd gamma
 * rmsnorm-grad: in  dy c[..,C], x a[..,C], gamma f32[C], rstd f32[..]
 *	out dx a[..,C], dgamma? f32[C]	attr norm.eps
 *	h = x rstd, g = dy gamma: dx = rstd (g - h mean(g h)); dgamma = sum over rows of dy h
 * maxpool: in  x c[B,C,Y,X]; out y c[B,C,P,Q]	attr pool.{kernel,stride,pad}
 *	P and Q are those of y: windows of kernel elements every `stride` from -pad on, each with
 *	an element of x; what is outside is never the maximum
 * maxpool-grad: in  dy c[B,C,P,Q], x c[B,C,Y,X]; out dx c[B,C,Y,X]	attr pool
 *	each dy is added to the first maximum of its window, in row-major order
 * avgpool: in  x c[B,C,Y,X]; out y c[B,C,P,Q]	attr pool
 *	the sum of a window divided by kernel[0] kernel[1] with pool.count_pad, else by the
 *	number of its elements inside the image
 * avgpool-grad: in  dy c[B,C,P,Q]; out dx c[B,C,Y,X]	attr pool
 * gap: in  x c[B,C,Y,X]; out y c[B,C]	the mean over Y and X
 * gap-grad: in  dy c[B,C]; out dx c[B,C,Y,X]	dx = dy / (Y X)
 * upsample: in  x c[B,C,Y,X]; out y c[B,C,P,Q]	attr pool.{kernel,stride}, which are equal
 *	y[p,q] = x[p / kernel[0], q / kernel[1]], rounded down; P = kernel[0] Y, Q = kernel[1] X
 * upsample-grad: in  dy c[B,C,P,Q]; out dx c[B,C,Y,X]	attr pool; the sum of dy over what shows the
 *	element
 * groupnorm: in  x c[B,C,Y,X], gamma f32[C], beta f32[C]	attr group
 *	out y c[B,C,Y,X], mean f32[B,G], rstd f32[B,G]	of the C/G channels of a group of an image,
 *	G = group.groups: rstd = 1/sqrt(mean((x - mean)^2) + eps); t = (x - mean) rstd gamma + beta;
 *	y = t, with group.silu t / (1 + exp(-t))
 * groupnorm-grad: in  dy c[B,C,Y,X], x c[B,C,Y,X], gamma f32[C], beta f32[C], mean f32[B,G], rstd
 *	f32[B,G]
 *	out dx c[B,C,Y,X], dgamma f32[C], dbeta f32[C]	attr group
 *	e = dy, with silu dy silu'(t); h = (x - mean) rstd, g = e gamma: dx = rstd (g - mean(g) - h
 *	mean(g h)) (means over the group); dgamma = sum of e h, dbeta = sum of e over the channel
 * relu: in  x c[..]; out y c[..]	y = max(0, x)	in place
 * relu-grad: in  dy c[..], y c[..]; out dx c[..]	dx = y > 0 ? dy : 0	in place
 * gelu-erf: in  x c[..]; out y c[..]	y = x/2 (1 + erf(x/sqrt(2)))
 * gelu-erf-grad: in  dy c[..], x c[..]; out dx c[..]	in place
 * gelu-quick: in  x c[..]; out y c[..]	y = x / (1 + exp(-1.702 x))
 * gelu-quick-grad: in  dy c[..], x c[..]; out dx c[..]	in place
 * silu: in  x c[..]; out y c[..]	y = x / (1 + exp(-x))
 * silu-grad: in  dy c[..], x c[..]; out dx c[..]	in place
 * swiglu: in  x c[..,2N]; out y c[..,N]	y[i] = silu(x[i]) x[N + i]
 * swiglu-grad: in  dy c[..,N], x c[..,2N]; out dx c[..,2N]	in place: over x
 * geglu: in  x c[..,2N]; out y c[..,N]	y[i] = x[i] gelu-erf(x[N + i])
 * geglu-grad: in  dy c[..,N], x c[..,2N]; out dx c[..,2N]	in place: over x
 * tokens: in  x c[B,C,P,Q], first? f32[C], pos? f32[S,C]
 *	out y a|c[B,S,C]	S = P Q, plus 1 with first: y[b,0] = first + pos[0];
 *	then y[b,.,c] = x[b,c,p,q] + pos[.] row by row	in place: only x, channels last
 * tokens-grad: in  dy a|c[B,S,C]
 *	out dx c[B,C,P,Q], dfirst? f32[C], dpos? f32[S,C]	in place: likewise
 * first: in  x a[B,S,C]; out y a[B,C]	y[b] = x[b,0]
 * first-grad: in  dy a[B,C]; out dx a[B,S,C]	dx[b,0] = dy[b], else 0
 * put-rows: in  x a[B,S,C], rows c[B,P,C], at i32[B]; out y a[B,S,C]	in place
 *	y = x, but y[b,at[b] + p] = rows[b,p] in sequences with at[b] >= 0; at[b] + P <= S holds
 * put-rows-grad: in  dy a[B,S,C], at i32[B]; out dx a[B,S,C], drows? c[B,P,C]	in place
 *	drows[b,p] = dy[b,at[b] + p], and dx is 0 there; with at[b] < 0 drows is 0; else dx = dy
 * concat: in  2 to 4 operands c[..], equal but for one dim	attr concat.axis
 *	out y c[..]	the operands side by side along this dim, in their order
 * split: in  y c[..]	attr concat
 *	out 2 to 4 parts c[..]	of concat's operands; of concat.size along the axis, some may be
 *	absent
 * dropout: in  x a|c[..], now i32[1]; out y a|c[..]	attr dropout	in place
 *	y = x / (1 - p) for kept elements, else 0. Element i (row-major by dims, for every
 *	layout) is kept if its 32 bits >= floor(p 2^32): the lower (i even) or upper half of
 *	jm_rng(jm_rng(dropout.seed, now), i / 2) of engine/graph/rng.h. dropout is its own gradient.
 * add: in  a a|c[..], b a|c[..]; out y a|c[..]	y = a + b	in place
 * softmax-xent: in  logits c[..,V], target i32[..] (target < V), scale? f32[2] = {S, 1/S}
 *	attr xent.{scale,weight,classes,ignores}: with `ignores` rows whose target is below 0 do not
 *	count: dlogits is 0 there, T and the mean are of the other rows, and the loss of none is 0;
 *	else 0 <= target holds. logits after `classes` (0: V) are ignored, dlogits is 0
 *	out loss f32[1], dlogits? c[..,V]	in place: dlogits (out[1]) over in[0]
 *	loss = weight mean over rows of (log sum exp logits - logits[target]), not scaled; dlogits =
 *	weight scale S / T (softmax(logits) - onehot(target)), S is read during the run and is 1
 *	if scale is absent. The mean is summed in f64 or pairwise, so that its error does not
 *	grow with T.
 * mse: in  y c[..], target c|f32[..], scale? f32[2] = {S, 1/S}
 *	out loss f32[1], dy? c[..]	attr xent.{scale,weight}
 *	loss = weight mean over all elements of (y - target)^2, not scaled; dy = 2 weight scale S /
 *	n (y - target), S and the sum as of softmax-xent
 * add-noise: in  x c[B,..], e c[B,..], t i32[B]	attr noise
 *	out y c[B,..], target? f32[B,..]
 *	k = product of 1 - beta_j over j = 0 to t[b], where sqrt(beta_j) goes from sqrt(noise.first)
 *	in equal steps to sqrt(noise.last) at j = steps - 1; 0 <= t < steps holds. y = sqrt(k) x +
 *	sqrt(1 - k) e; target = e, with noise.velocity sqrt(k) e - sqrt(1 - k) x
 * draw-moments: in  m c[B,2C,..], e c[B,C,..]; out y c[B,C,..]	attr draw
 *	m: means, then logarithms of variances, which count from -30 to 20: y[b,c] = draw.factor
 *	(m[b,c] + exp(m[b,C+c] / 2) e[b,c]). It has no gradient.
 * step-waves: in  t i32[B]; out y c[B,C,1,1]	C even: with w_i = 10000^(-i / (C/2)), i < C/2,
 *	y[b,i] = cos(t[b] w_i), y[b,C/2 + i] = sin(t[b] w_i)
 * colours: in  x u8[B,3,Y,X]; out y c[B,3,Y,X]	attr colours
 *	y = colours.factor[c] x + colours.shift[c] of channel c. It has no gradient.
 * dft: in  x c[B,N..,C], 1 to 3 axes of N points	attr dft
 *	out y c[B,2,K,C]	part of the discrete Fourier transform: [.,0] real, [.,1] imaginary
 *	parts. Of each axis a but the last the frequencies f = 0 to modes[a] - 1 and N - modes[a] to
 *	N - 1 are kept, of the last 0 to modes[a] - 1; K are all combinations, row-major. With t = 2
 *	pi times the sum over axes of f n/N and s = 1/sqrt(all points): y[b,0,k] = s sum over n of
 *	x[b,n] cos t, y[b,1,k] = -s sum of x[b,n] sin t; with dft.twice both times 2, but where the
 *	last f is 0 or N/2
 * idft: in  y c[B,2,K,C]; out x c[B,N..,C]	attr dft
 *	x[b,n] = s sum over k of (y[b,0,k] cos t - y[b,1,k] sin t), terms times 2 as of dft: with
 *	dft.twice the inverse transform to real x, all other frequencies being 0. With the same
 *	dft.twice each of dft and idft is the gradient of the other.
 * mix-modes: in  x c[B,2,K,I], w c[2,K,I,O]; out y c[B,2,K,O]	y[b,.,k] = x[b,.,k] w[.,k], complex
 *	products
 * mix-modes-dgrad: in  dy c[B,2,K,O], w c[2,K,I,O]; out dx c[B,2,K,I]	dx = dy w^T, w conjugate
 * mix-modes-wgrad: in  dy c[B,2,K,O], x c[B,2,K,I]; out dw f32[2,K,I,O]	dw = sum over b of
 *	x^T dy, x conjugate
 * relative-l2: in  y c[B,N..,C], target c|f32[B,N..,C], scale? f32[2] = {S, 1/S}
 *	out loss f32[1], dy? c[B,N..,C]	attr xent.{scale,weight,axes}
 *	Norms are over the last `axes` of N; M = B C times the points of the other axes. loss =
 *	weight mean over M of |y - target| / |target|, not scaled; dy = weight scale S / M (y -
 *	target) / (|y - target| |target|), 0 where y = target; S and the sums as of softmax-xent
 * top1: in  logits c[..,V], target i32[..]
 *	out share f32[1]	share of the rows whose (first) largest logit is logits[target];
 *	none of those whose target is below 0
 * cast: in  x any[..]; out y any[..]	the same elements in another type and/or layout;
 *	padding of a blocked output is 0. f32 -> f32 with different layouts is a reorder. Both
 *	layouts are given in the tensors; select keeps them.
 * norm: in  x f32|bf16[n], more? f32[..]
 *	out y f32[1]	y = sqrt(sum x^2 + sum more^2), summed in f64 or pairwise; y is not finite
 *	if an element is not
 * adamw: in  g f32|bf16[n], norm? f32[1], now f32[3] = {lr, 1 - beta1^t, 1 - beta2^t}, t from 1,
 *	scale? f32[2] = {S, 1/S}
 *	out p f32[n], m f32[n], v f32[n]: read and written; copy? bf16|f16[k] = p[copy_first + i]
 *	attr adamw.{beta1,beta2,eps,weight_decay,clip,n_decay,copy_first,first}
 *	If norm is given and not finite, nothing changes. 1/S is read during the run (1 if scale
 *	is absent): g' = g/S min(1, clip/(norm/S + 1e-6)) when norm is given and clip > 0, else
 *	g/S. For i < n_decay first p -= lr weight_decay p. m = beta1 m + (1 - beta1) g'; v =
 *	beta2 v + (1 - beta2) g'^2; p -= lr/now[1] m / (sqrt(v/now[2]) + eps). One pass over
 *	memory.
 * adam: as adamw, but weight decay is added to the gradient: for i < n_decay
 *	g' += weight_decay p, and p is not decayed directly (Kingma and Ba, arXiv 1412.6980)
 *	For all three updates: p, m and v are f32, or all bf16. With bf16 `now` has another element,
 *	the number t of the step, and each result x of element i is rounded stochastically: with
 *	k = first + i and r = jm_rng_rounding(jm_rng(jm_rng(0, t), k / 2), k, 0 for p, 1 for m, 2
 *	for v) of engine/graph/rng.h it is the upper half of (bits of x as f32) + r.
 * sgd: in  g f32|bf16[n], norm? f32[1], now f32[1] = {lr}, scale? f32[2] = {S, 1/S}
 *	out p f32[n], m f32[n]	updated: read and written
 *	attr sgd.{momentum,weight_decay,clip,nesterov,n_decay,first}
 *	norm, clip and g' as adamw. For i < n_decay g' += weight_decay p; m = momentum m + g';
 *	p -= lr (nesterov ? g' + momentum m : m).
 * average: in  p f32|bf16[n], now f32[k], norm? f32[1]; out e f32[n]	updated: read and written
 *	attr average.at	e = p if now[average.at] is 1, else e += now[average.at] (p - e); but that
 *	changes nothing if norm is given and not finite
 * cache-write: in  x c[..,(H+2G)D], position i32[T], request i32[T], page i32[R,P], keys and values
 *	c[N,S,G,D], or f8e4m3 (scale 1; to nearest even, at most 448)	attr
 *	pages.{heads,kv_heads,rotary}
 *	out q c[..,H D], keys and values (in[4] and in[5], updated)
 *	The T rows belong to requests, in any order. N pages have S slots each; position p of
 *	request r is in slot p % S of page[r, p / S]. Queries and keys of row t are rotated as by
 *	rope at position[t]; keys and values go to their slots, queries to q. A row whose position
 *	is below 0 is padding: q is 0, and nothing is stored. No two rows share a slot.
 * attention-pages: in  q c[..,H D], position i32[T], request i32[T], page i32[R,P], keys and values
 *	as of cache-write; out y c[..,H D]	attr pages.{heads,kv_heads,scale}
 *	as attention: row t sees the keys of its request at positions 0 to position[t]; padding: 0
 *	With keys in f8e4m3 q is rounded to that type, too (as cache-write rounds keys), so that
 *	the result of a row does not depend on how many rows are computed with it.
 * rows: in  x any[..,C] or any[T], at i32[R]; out y any[R,C] or any[R]	y[r] = x[at[r]], 0 <= at < T
 *	holds
 * rows-grad: in  dy a|c[R,C], at i32[R]; out dx a|c[..,C]
 *	dx[at[r]] = dy[r], other rows are 0; no two of at are equal
 * wanted-rows: in  target i32[..]; out at i32[R], wanted i32[R]	R <= T
 *	at: the first R of the numbers of the rows whose target is 0 or more, and then of the
 *	others, each in their order; wanted[r] = target[at[r]]
 * made-ids: in  ids i32[..], token i32[R]; out y i32[..]	y = ids where that is 0 or more,
 *	else what the step before made: token[-1 - ids]; ids >= -R holds
 * sample: in  logits c[R,V], rule? f32[R,3], draw? i32[R,2]; out token i32[R]	attr xent.classes
 *	Of the first `classes` (0: V) logits x of each row, the (first) largest; with a rule = {T,
 *	p, k} of T > 0 one is drawn. They are ordered, the largest and of equal ones the first
 *	before others; the first k stay (k = 0: all), and of these the first ones whose weights
 *	exp(x / T) reach p of the sum (p >= 1: all). The draw's 64 bits (low half first) have u =
 *	(bits >> 11) 2^-53; in the order of their indices, the
 *	token is the first one at which the sum of weights exceeds u of the sum of all that stay.
 * all-reduce-start: in  x f32|f64[n]; out y, the same tensor: the sum over W ranks; like the next 3
 *	not for backends
 * all-reduce-wait: in  x any[n]; out y, the same tensor; done when every transfer that was started
 *	is done
 * reduce-scatter-start: in  x f32|f64[W n]; out y f32|f64[n]: the own share of the sum over the
 *	ranks
 * all-gather-start: in  x any[n]; out y any[W n]: the shares of all ranks; x may be the own share
 *	in y
 * The next are of W ranks that share a model (tensor_parallel.h), not for backends:
 * sum-ranks: in  x c[..]; out y c[..]	the sum over the ranks	in place
 * own-rows: in  x any[T,C], equal on all ranks; out y any[T/W,C]	the own rows
 * whole-rows: in  x any[T/W,C]; out y any[T,C]	the rows of all ranks in their order
 * gather-rows: as whole-rows, for readers that differ between ranks
 * from-first: in  x any[..]; out y, the same tensor: x of the first rank
 * sum-rows: in  x c[T,C]; out y c[T/W,C]	the own rows of the sum over the ranks
 * The last ones are of ranks that have stages of one model (pipeline_parallel.h), not for backends:
 * stage-in: out y a[..]	comes from another stage before the part of a stage that this begins
 * stage-out: in  x a[..]	ends a part of a stage; then x goes to another stage, unless it is
 *	the loss
 * stage-norms: in  x f32[1]; out y f32[W]	x of all W ranks that share the model
 * stage-swap: in  x any[n]; out y any[n]	x of the other one of the first and the last stage
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
	X(UPSAMPLE, "upsample")                                                                    \
	X(UPSAMPLE_GRAD, "upsample-grad")                                                          \
	X(GROUPNORM, "groupnorm")                                                                  \
	X(GROUPNORM_GRAD, "groupnorm-grad")                                                        \
	X(RELU, "relu")                                                                            \
	X(RELU_GRAD, "relu-grad")                                                                  \
	X(GELU_ERF, "gelu-erf")                                                                    \
	X(GELU_ERF_GRAD, "gelu-erf-grad")                                                          \
	X(GELU_QUICK, "gelu-quick")                                                                \
	X(GELU_QUICK_GRAD, "gelu-quick-grad")                                                      \
	X(SILU, "silu")                                                                            \
	X(SILU_GRAD, "silu-grad")                                                                  \
	X(SWIGLU, "swiglu")                                                                        \
	X(SWIGLU_GRAD, "swiglu-grad")                                                              \
	X(GEGLU, "geglu")                                                                          \
	X(GEGLU_GRAD, "geglu-grad")                                                                \
	X(TOKENS, "tokens")                                                                        \
	X(TOKENS_GRAD, "tokens-grad")                                                              \
	X(FIRST, "first")                                                                          \
	X(FIRST_GRAD, "first-grad")                                                                \
	X(PUT_ROWS, "put-rows")                                                                    \
	X(PUT_ROWS_GRAD, "put-rows-grad")                                                          \
	X(CONCAT, "concat")                                                                        \
	X(SPLIT, "split")                                                                          \
	X(DROPOUT, "dropout")                                                                      \
	X(ADAM, "adam")                                                                            \
	X(SGD, "sgd")                                                                              \
	X(AVERAGE, "average")                                                                      \
	X(QUANTIZE, "quantize")                                                                    \
	X(RESCALE, "rescale")                                                                      \
	X(TOP1, "top1")                                                                            \
	X(MSE, "mse")                                                                              \
	X(CACHE_WRITE, "cache-write")                                                              \
	X(ATTENTION_PAGES, "attention-pages")                                                      \
	X(ROWS, "rows")                                                                            \
	X(ROWS_GRAD, "rows-grad")                                                                  \
	X(WANTED_ROWS, "wanted-rows")                                                              \
	X(MADE_IDS, "made-ids")                                                                    \
	X(SAMPLE, "sample")                                                                        \
	X(ADD_NOISE, "add-noise")                                                                  \
	X(DRAW_MOMENTS, "draw-moments")                                                            \
	X(STEP_WAVES, "step-waves")                                                                \
	X(COLOURS, "colours")                                                                      \
	X(DFT, "dft")                                                                              \
	X(IDFT, "idft")                                                                            \
	X(MIX_MODES, "mix-modes")                                                                  \
	X(MIX_MODES_DGRAD, "mix-modes-dgrad")                                                      \
	X(MIX_MODES_WGRAD, "mix-modes-wgrad")                                                      \
	X(RELATIVE_L2, "relative-l2")                                                              \
	X(ALL_REDUCE_START, "all-reduce-start")                                                    \
	X(ALL_REDUCE_WAIT, "all-reduce-wait")                                                      \
	X(REDUCE_SCATTER_START, "reduce-scatter-start")                                            \
	X(ALL_GATHER_START, "all-gather-start")                                                    \
	X(SUM_RANKS, "sum-ranks")                                                                  \
	X(OWN_ROWS, "own-rows")                                                                    \
	X(WHOLE_ROWS, "whole-rows")                                                                \
	X(GATHER_ROWS, "gather-rows")                                                              \
	X(FROM_FIRST, "from-first")                                                                \
	X(SUM_ROWS, "sum-rows")                                                                    \
	X(STAGE_IN, "stage-in")                                                                    \
	X(STAGE_OUT, "stage-out")                                                                  \
	X(STAGE_NORMS, "stage-norms")                                                              \
	X(STAGE_SWAP, "stage-swap")
enum jm_op {
#define X(name, text) JM_OP_##name,
	JM_OPS(X)
#undef X
		JM_OP_COUNT
};

#endif
